"""The feature cache: features of a frozen backbone for several views of each image, on disk.

    manifest.json                what it was made from, what it contains, size and hash of every file
    images.parquet               its images, in the order they came; rows of the cache are positions in this list
    views/<name>/rows.npy        rows of the cache that the view covers, in the order of the features
    views/<name>/geometry.npy    left, top, right, bottom, flip_x, flip_y, exact of each row
    views/<name>/pooled.npy      n×D float32, the mean over cells; not of an inner stage
    views/<name>/token.npy       n×D float32, the class token; only if the backbone has one, not of an inner stage
    views/<name>/NNNNN.npy       shards of n×G×G×D, channels last: uint8 if 8 bits keep enough, else float16
    views/<name>/scales.npy      shards×D, by which uint8 features are multiplied; only if features are uint8
    views/<name>/offsets.npy     shards×D, which are then added; only of an inner stage

A cache depends on the images, the backbone's weights and its preprocessing, and on nothing else: it stays valid when
labels change. Images are identified by name, so it serves every dataset of some of its images, in any order. It grows:
images that are new to it, and images that join the training split, are added to each view as new shards, and nothing
that is there is computed again.

**Quantization.** An activation between 0 and a bound b, such as ReLU6, keeps in 8 bits what a classifier needs. Each
channel c of a shard has its own scale, from its largest value m_c in the shard, so no value is clipped:

    stored = round(x / s_c),   s_c = m_c / 255,   |stored · s_c − x| ≤ s_c / 2 ≤ b / 510

Without a bound, a few large values would make the steps too coarse for all others; such features are stored in half
precision. Whether a backbone stays within its bound is measured on a few images before extraction.

The output of an inner stage may be negative, and the layers behind it average the rounding errors of many values. It is
stored relative to the smallest value of each channel in the shard, and in 8 bits if that changes the features at the
end of the backbone little enough, which is measured too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.data.cache_images import FILE as IMAGES_FILE
from tagfill.data.cache_images import CachedImages
from tagfill.data.manifest import Manifest, MissingImage, strong_view_name, weak_view_name
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, TagfillWarning
from tagfill.images import Geometry
from tagfill.io import sha256
from tagfill.models import Preprocessing
from tagfill.progress import SILENT, Progress

DTYPES = ("uint8", "float16", "float32")
MAX_QUANTIZATION_ERROR = 0.02  # relative root mean square; 0.0025 for tf_efficientnet_lite0
MAX_INNER_ERROR = 0.1  # likewise, of the features at the end if an inner stage is stored in 8 bits
_CHUNK_ROWS = 64  # quantized at a time, so that no temporary array is as large as a shard


class FeatureCache:
    """A complete cache, opened for reading.

    Args:
        folder: of the cache.
        manifest: its content.
        rows: row of the cache for each row of the dataset's image table; None if they are the same.
    """

    def __init__(self, folder: Path, manifest: Manifest, rows: NDArray[np.int64] | None = None) -> None:
        self.folder = folder
        self.manifest = manifest
        self._rows = rows
        self._views: dict[str, CachedView] = {}

    def __fspath__(self) -> str:
        """Return the folder, so that a cache can be given wherever its path can."""
        return str(self.folder)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], dataset: Dataset | None = None) -> FeatureCache:
        """Open a cache. It must be complete, and every file must have the size that the manifest says.

        Args:
            folder: folder of the cache.
            dataset: the dataset whose images it must contain; rows are then those of its image table.

        Raises:
            TagfillError: if it is incomplete, damaged, or lacks images.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if incomplete := [name for name, view in manifest.views.items() if view.done < view.rows]:
            raise TagfillError(
                f"The feature cache {folder} is not complete (view '{incomplete[0]}'); run 'tagfill features' again."
            )
        for view in manifest.views:
            for path, problem in find_wrong_sizes(folder, view, manifest):
                raise _damaged_file(path, problem)
        if dataset is None:
            return cls(folder, manifest)
        _warn_about_replaced(folder, manifest, dataset)
        if dataset.identities["images"] == manifest.images and manifest.views["eval"].rows == len(dataset):
            return cls(folder, manifest)
        names = dataset.names()
        rows = CachedImages.read(folder, manifest.image_count, manifest.images, names).find(names)
        lacking = int((~np.isin(rows, CachedView(folder, "eval", manifest).rows)).sum())
        if lacking:
            raise TagfillError(
                f"The feature cache {folder} lacks {lacking:,} of the {len(dataset):,} images of dataset "
                f"{dataset.name}; add them with 'tagfill features', which computes only what is missing."
            )
        return cls(folder, manifest, rows)

    def cached_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the cache, of these rows of the dataset's image table."""
        return rows if self._rows is None else self._rows[rows]

    @property
    def missing(self) -> dict[int, MissingImage]:
        """Images of the dataset that could not be decoded, by row of its image table."""
        by_row = {image.row: image for image in self.manifest.missing}
        if self._rows is None:
            return by_row
        rows = np.flatnonzero(np.isin(self._rows, list(by_row)))
        return {int(row): by_row[int(self._rows[row])] for row in rows}

    def covers(self, view: str, rows: NDArray[np.int64]) -> bool:
        """Whether a view has all these rows of the dataset's image table."""
        return self.view(view).covers(self.cached_rows(rows))

    @property
    def preprocessing(self) -> Preprocessing:
        """Preprocessing of the pixels that went into the backbone."""
        return self.manifest.preprocessing

    @property
    def weak_views(self) -> tuple[str, ...]:
        """Views to train on, `eval` first; strong views are used in pairs only."""
        return tuple(name for name, view in self.manifest.views.items() if view.role != "strong")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the weak and the strong view of each pair."""
        names = ((weak_view_name(n), strong_view_name(n)) for n in range(len(self.manifest.views)))
        return [pair for pair in names if all(name in self.manifest.views for name in pair)]

    def view(self, name: str) -> CachedView:
        """Open one view."""
        if name not in self._views:
            if name not in self.manifest.views:
                raise TagfillError(
                    f"The feature cache {self.folder} has no view '{name}'; it has {', '.join(self.manifest.views)}."
                )
            self._views[name] = CachedView(self.folder, name, self.manifest)
        return self._views[name]

    def only(self, views: Mapping[str, str]) -> FeatureCache:
        """Restrict the cache to these views.

        Args:
            views: identity of each view, by name; a view with another identity is an error.
        """
        for name, identity in views.items():
            if name not in self.manifest.views or self.manifest.views[name].identity != identity:
                raise TagfillError(
                    f"The view '{name}' of the feature cache {self.folder} has changed since the run started; start a "
                    "new run."
                )
        kept = {name: record for name, record in self.manifest.views.items() if name in views}
        return FeatureCache(self.folder, self.manifest.model_copy(update={"views": kept}), self._rows)

    @property
    def at(self) -> str:
        """The stage of the backbone whose output is stored; `features` is its end."""
        return self.manifest.at

    def require_tokens(self) -> None:
        """Raise if the cache has no class tokens."""
        if not self.manifest.tokens:
            raise TagfillError(
                f"The feature cache {self.folder} has no class tokens, which pool=token needs; make a new one in "
                "another folder with 'tagfill features', or use images, or pool=gap."
            )

    def read(
        self,
        views: Sequence[str],
        drawn: NDArray[np.int64],
        rows: NDArray[np.int64],
        *,
        maps: bool,
        tokens: bool = False,
    ) -> tuple[Tensor, Geometry]:
        """Read the features of a batch, each row in its own view, and the geometry of the views.

        Args:
            views: names of views.
            drawn: B, index into `views` for each row.
            rows: B rows of the dataset's image table.
            maps: read spatial features, B×D×G×G with channels last in memory; otherwise B×D pooled features.
            tokens: read B×D class tokens instead.
        """
        at = self.locate(views, drawn, rows)
        return self.gather(views, drawn, at, maps=maps, tokens=tokens), self.geometry(views, drawn, at)

    def locate(self, views: Sequence[str], drawn: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find many rows, each in its own view; for arguments see `read`.

        Returns:
            B, the position of each row in its view, which `gather` and `geometry` take.
        """
        at = np.empty(len(rows), np.int64)
        cached = self.cached_rows(rows)
        for number, name in enumerate(views):
            places = np.flatnonzero(drawn == number)
            if len(places):
                at[places] = self.view(name).find(cached[places])
        return at

    def gather(
        self,
        views: Sequence[str],
        drawn: NDArray[np.int64],
        at: NDArray[np.int64],
        *,
        maps: bool,
        tokens: bool = False,
    ) -> Tensor:
        """Read the features at B positions that `locate` found; for the other arguments see `read`."""
        if not maps and len(views) == 1:
            view = self.view(views[0])
            return torch.from_numpy(view.token(at) if tokens else view.pooled(at))
        shape = (*self.manifest.grid, self.manifest.channels) if maps else (self.manifest.channels,)
        features = np.empty((len(at), *shape), np.float32)
        for number, name in enumerate(views):
            places = np.flatnonzero(drawn == number)
            if not len(places):
                continue
            view = self.view(name)
            if maps:
                view.read_cells(at[places], features, places)
            else:
                features[places] = view.token(at[places]) if tokens else view.pooled(at[places])
        inputs = torch.from_numpy(features)
        return inputs.permute(0, 3, 1, 2) if maps else inputs

    def geometry(self, views: Sequence[str], drawn: NDArray[np.int64], at: NDArray[np.int64]) -> Geometry:
        """The geometry at B positions that `locate` found; for the other arguments see `read`."""
        packed = np.empty((len(at), 7), np.float32)
        for number, name in enumerate(views):
            places = np.flatnonzero(drawn == number)
            packed[places] = self.view(name).geometry[at[places]]
        return unpack_geometry(packed)


class CachedView:
    """The features of one view, memory-mapped.

    A view may grow while it is open: what was there when its manifest was read stays where it is.
    """

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self._manifest, self._name = manifest, name
        self._folder = folder / "views" / name
        self._record = manifest.views[name]
        self._count, self._starts = self._record.rows, self._record.starts
        self.rows = self._load("rows.npy", (self._count,))
        self._order = np.argsort(self.rows, kind="stable")
        self.geometry = self._load("geometry.npy", (self._count, 7))

    def covers(self, rows: NDArray[np.int64]) -> bool:
        """Whether all these rows of the cache are in this view."""
        return self._find(rows) is not None

    def find(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of these rows of the cache in this view."""
        at = self._find(rows)
        if at is None:
            raise TagfillError(f"The view '{self._name}' of the feature cache does not cover all requested images.")
        return at

    def _find(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        place = np.searchsorted(self.rows, rows, sorter=self._order)
        if not (place < self._count).all():
            return None
        at: NDArray[np.int64] = self._order[place]
        return at if (self.rows[at] == rows).all() else None

    def pooled(self, at: NDArray[np.int64]) -> NDArray[np.float32]:
        """Mean features at these positions, B×D."""
        return self._pooled.take(at, axis=0)

    def token(self, at: NDArray[np.int64]) -> NDArray[np.float32]:
        """Class tokens at these positions, B×D."""
        return self._token.take(at, axis=0)

    def read_cells(self, at: NDArray[np.int64], out: NDArray[np.float32], places: NDArray[np.int64]) -> None:
        """Read the spatial features at these positions of the view, G×G×D each, into `out[places]`."""
        starts = self._starts
        shards = np.searchsorted(starts, at, side="right") - 1
        for source, shard, target in zip(at.tolist(), shards.tolist(), places.tolist(), strict=True):
            row = source - starts[shard]
            if self._manifest.dtype == "uint8":
                dequantize(self._shards[shard][row], self._scales[shard], out[target])
                if self._manifest.inner:
                    out[target] += self._offsets[shard]
            else:
                out[target] = self._shards[shard][row]

    @cached_property
    def _pooled(self) -> NDArray[np.float32]:
        return self._load("pooled.npy", (self._count, self._manifest.channels), mmap=True)

    @cached_property
    def _token(self) -> NDArray[np.float32]:
        return self._load("token.npy", (self._count, self._manifest.channels), mmap=True)

    @cached_property
    def _shards(self) -> list[NDArray[Any]]:
        return [
            self._load(shard_name(number), (rows, *self._manifest.cells_of_row), mmap=True)
            for number, rows in enumerate(self._record.shards)
        ]

    @cached_property
    def _scales(self) -> NDArray[np.float32]:
        return self._load("scales.npy", (len(self._shards), self._manifest.channels))

    @cached_property
    def _offsets(self) -> NDArray[np.float32]:
        return self._load("offsets.npy", (len(self._shards), self._manifest.channels))

    def _load(self, name: str, shape: tuple[int, ...], *, mmap: bool = False) -> NDArray[Any]:
        path = self._folder / name
        try:
            array: NDArray[Any] = np.asarray(
                np.load(path, mmap_mode="r" if mmap and self._count else None, allow_pickle=False)
            )
        except (OSError, ValueError, EOFError) as error:
            raise _damaged_file(path, f"cannot be read ({error})") from None
        if array.shape[1:] != shape[1:] or len(array) < shape[0]:
            raise _damaged_file(path, f"has shape {array.shape} instead of {shape}")
        return array[: shape[0]]


def verify_cache(cache: FeatureCache, progress: Progress = SILENT) -> int:
    """Read all files of a cache and compare their hashes with the manifest.

    Args:
        cache: an open cache, so all files are there and have the right size.
        progress: reports each file.

    Returns:
        The number of bytes read.

    Raises:
        TagfillError: if a hash differs.
    """
    files = [
        (cache.folder / "views" / view / name, record)
        for view, held in cache.manifest.views.items()
        for name, record in held.files.items()
    ]
    with progress.bar("verify", len(files), "file") as bar:
        for path, record in files:
            if sha256(path) != record.sha256:
                raise _damaged_file(path, "does not contain the bytes that were written")
            bar.advance()
    return sum(record.bytes for _, record in files)


def find_wrong_sizes(folder: Path, view: str, manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """Find the files of a view that are missing or do not have the size in the manifest, with the problem of each."""
    for name, file in manifest.views[view].files.items():
        path = folder / "views" / view / name
        found = path.stat().st_size if path.is_file() else None
        if found is None:
            yield path, "is missing"
        elif found != file.bytes:
            yield path, f"has {found:,} bytes instead of {file.bytes:,}"


def _warn_about_replaced(folder: Path, manifest: Manifest, dataset: Dataset) -> None:
    """Say so if photos were replaced after their features were computed."""
    if not (folder / IMAGES_FILE).is_file():  # made by an older version
        return
    listed = CachedImages.of(dataset)
    replaced = np.flatnonzero(CachedImages.read(folder, manifest.image_count, manifest.images).replaced(listed))
    if len(replaced):
        warnings.warn(
            f"{len(replaced):,} photos were replaced after their features were computed, such as "
            f"'{listed.names[int(replaced[0])]}'; 'tagfill features' computes them again in {folder}.",
            TagfillWarning,
            stacklevel=3,
        )


def _damaged_file(path: Path, problem: str) -> TagfillError:
    return TagfillError(
        f"{path} of the feature cache {problem}; delete the folder {path.parent} and run 'tagfill features' again, "
        "which makes this view again."
    )


def shard_name(shard: int) -> str:
    """File name of a shard of spatial features."""
    return f"{shard:05d}.npy"


def pack_geometry(geometry: Geometry) -> NDArray[np.float32]:
    """Pack into n×7: box, flip_x, flip_y, exact."""
    rest = (geometry.flip_x, geometry.flip_y, geometry.exact)
    return np.concatenate([geometry.box, *(column[:, None] for column in rest)], axis=1, dtype=np.float32)


def unpack_geometry(packed: NDArray[np.float32]) -> Geometry:
    """Invert `pack_geometry`."""
    return Geometry(packed[:, :4].copy(), packed[:, 4] > 0, packed[:, 5] > 0, packed[:, 6] > 0)


def quantize(cells: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Convert non-negative features to uint8.

    Args:
        cells: n×G×G×D.

    Returns:
        n×G×G×D uint8, and the D scales to multiply them with.

    >>> stored, scale = quantize(np.array([0, 510, 255, 102], np.float32).reshape(2, 1, 1, 2))
    >>> stored.ravel().tolist(), scale.tolist()
    ([0, 255, 255, 51], [1.0, 2.0])
    """
    largest = cells.max((0, 1, 2), initial=0)
    scale = np.where(largest > 0, largest / 255, 1).astype(np.float32)
    stored = np.empty(cells.shape, np.uint8)
    for start in range(0, len(cells), _CHUNK_ROWS):
        chunk = cells[start : start + _CHUNK_ROWS] / scale
        stored[start : start + _CHUNK_ROWS] = np.rint(chunk, out=chunk)
    return stored, scale


def quantize_signed(
    cells: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Convert features of any sign to uint8.

    Args:
        cells: n×G×G×D; changed in place.

    Returns:
        n×G×G×D uint8, the D scales to multiply them with, and the D offsets to add then.

    >>> stored, scale, offset = quantize_signed(np.array([-255, 0, 255, 51], np.float32).reshape(2, 1, 1, 2))
    >>> stored.ravel().tolist(), scale.tolist(), offset.tolist()
    ([0, 0, 255, 255], [2.0, 0.20000000298023224], [-255.0, 0.0])
    """
    offset = cells.min((0, 1, 2), initial=np.inf) if cells.size else np.zeros(cells.shape[-1], np.float32)
    cells -= offset
    stored, scale = quantize(cells)
    return stored, scale, offset.astype(np.float32)


def dequantize(stored: NDArray[np.uint8], scale: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Invert `quantize`, in one pass into `out`."""
    np.multiply(stored, scale, out=out)


def quantization_problem(cells: NDArray[np.float32], bound: float) -> str | None:
    """Say why features cannot be stored as uint8; None if they can.

    Args:
        cells: n×G×G×D, features of a few images.
        bound: their declared upper bound.
    """
    least, largest = float(cells.min(initial=0)), float(cells.max(initial=0))
    if least < 0 or largest > bound * (1 + 1e-5):
        return f"they range from {least:.3g} to {largest:.3g}, outside 0 to {bound:g}"
    if (error := quantization_error(cells)) > MAX_QUANTIZATION_ERROR:
        return f"8 bits would change them by {error:.1%}"
    return None


def quantization_error(cells: NDArray[Any]) -> float:
    """Root mean square of the change by `quantize`, relative to that of the features; 0 if all features are 0."""
    stored, scale = quantize(cells)
    size = float(np.square(cells, dtype=np.float64).mean()) if cells.size else 0.0
    return float(np.sqrt(np.square(stored * scale - cells, dtype=np.float64).mean() / size)) if size > 0 else 0.0
