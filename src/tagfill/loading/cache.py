"""The feature cache: what a frozen backbone says about recorded views of each image, on disk.

    manifest.json                what it was made from, what it holds, how far it got; length and hash of every file
    views/<name>/rows.npy        rows of the image table that the view covers, ascending
    views/<name>/geometry.npy    left, top, right, bottom, flip_x, flip_y, exact of each
    views/<name>/pooled.npy      n×D float32, the mean over cells
    views/<name>/NNNNN.npy       shards of n×G×G×D, cells last: bytes of a bounded activation, else float16
    views/<name>/scales.npy      shards×D, what bytes are multiplied with; only where there are bytes

A cache depends on the ordered list of images, the backbone's weights and its preprocessing, and on nothing else: a
changed label does not touch it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.images import Geometry
from tagfill.loading.encoding import from_bytes
from tagfill.loading.manifest import Manifest
from tagfill.loading.planned import strong_of, weak_of
from tagfill.models import Preprocessing


def shard_name(shard: int) -> str:
    """Of a file of spatial features."""
    return f"{shard:05d}.npy"


def pack_geometry(geometry: Geometry) -> NDArray[np.float32]:
    """n×7: box, flip_x, flip_y, exact."""
    rest = (geometry.flip_x, geometry.flip_y, geometry.exact)
    return np.concatenate([geometry.box, *(column[:, None] for column in rest)], axis=1, dtype=np.float32)


def unpack_geometry(packed: NDArray[np.float32]) -> Geometry:
    """Back from `pack_geometry`."""
    return Geometry(packed[:, :4].copy(), packed[:, 4] > 0, packed[:, 5] > 0, packed[:, 6] > 0)


class CachedView:
    """The features of one view, memory-mapped."""

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self._manifest, self._name = manifest, name
        self._folder = folder / "views" / name
        self._count = manifest.views[name].rows
        self.rows = self._load("rows.npy", (self._count,))
        self.geometry = self._load("geometry.npy", (self._count, 7))

    @cached_property
    def _pooled(self) -> NDArray[np.float32]:
        return self._load("pooled.npy", (self._count, self._manifest.channels), mmap=True)

    @cached_property
    def _shards(self) -> list[NDArray[Any]]:
        size = self._manifest.shard_rows
        return [
            self._load(shard_name(at // size), (min(size, self._count - at), *self._manifest.cells_of_row), mmap=True)
            for at in range(0, self._count, size)
        ]

    @cached_property
    def _scales(self) -> NDArray[np.float32]:
        return self._load("scales.npy", (len(self._shards), self._manifest.channels))

    def _load(self, name: str, shape: tuple[int, ...], *, mmap: bool = False) -> NDArray[Any]:
        path = self._folder / name
        try:
            array: NDArray[Any] = np.asarray(
                np.load(path, mmap_mode="r" if mmap and self._count else None, allow_pickle=False)
            )
        except (OSError, ValueError, EOFError) as error:
            raise damaged(path, f"cannot be read ({error})") from None
        if array.shape != shape:
            raise damaged(path, f"has shape {array.shape} instead of {shape}")
        return array

    def covers(self, rows: NDArray[np.int64]) -> bool:
        """Whether all these rows of the image table are in this view."""
        return self._find(rows) is not None

    def find(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where these rows of the image table lie in this view."""
        at = self._find(rows)
        if at is None:
            raise TagfillError(f"The view '{self._name}' of the feature cache does not cover all images asked for.")
        return at

    def _find(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        at = np.searchsorted(self.rows, rows)
        inside = at < self._count
        return at if inside.all() and (self.rows[at] == rows).all() else None

    def pooled(self, at: NDArray[np.int64]) -> NDArray[np.float32]:
        """Mean features at these places, B×D."""
        return self._pooled[at]

    def read_cells(self, at: NDArray[np.int64], out: NDArray[np.float32], places: NDArray[np.int64]) -> None:
        """Spatial features at these places of the view, G×G×D each, into these places of `out`."""
        size = self._manifest.shard_rows
        for source, target in zip(at.tolist(), places.tolist(), strict=True):
            shard, row = divmod(source, size)
            if self._manifest.dtype == "uint8":
                from_bytes(self._shards[shard][row], self._scales[shard], out[target])
            else:
                out[target] = self._shards[shard][row]


class FeatureCache:
    """A complete cache, opened for reading."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._views: dict[str, CachedView] = {}

    @classmethod
    def open(cls, folder: str | Path, dataset: Dataset | None = None) -> FeatureCache:
        """Open a cache: it must be complete, and every file as long as the manifest says.

        Args:
            folder: of the cache.
            dataset: whose images it must have been made from.

        Raises:
            TagfillError: if it is not complete, damaged, or made from other images.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if undone := [name for name, view in manifest.views.items() if view.done < view.rows]:
            raise TagfillError(
                f"The feature cache {folder} is not complete (view '{undone[0]}'); run 'tagfill features' again."
            )
        check_lengths(folder, manifest)
        if dataset is not None and dataset.identities["images"] != manifest.images:
            raise TagfillError(
                f"The feature cache {folder} was made from another list of images than dataset {dataset.name}; "
                "make one for it with 'tagfill features'."
            )
        return cls(folder, manifest)

    @property
    def preprocessing(self) -> Preprocessing:
        """Of the pixels that went into the backbone."""
        return Preprocessing.from_json(self.manifest.preprocessing)

    @property
    def weak_views(self) -> tuple[str, ...]:
        """Views to train on, the plain one first; strong ones are for pairs only."""
        return tuple(name for name, view in self.manifest.views.items() if view.role != "strong")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the weak and the strong view of each pair."""
        names = ((weak_of(number), strong_of(number)) for number in range(len(self.manifest.views)))
        return [pair for pair in names if all(name in self.manifest.views for name in pair)]

    def view(self, name: str) -> CachedView:
        """One view."""
        if name not in self._views:
            if name not in self.manifest.views:
                raise TagfillError(
                    f"The feature cache {self.folder} has no view '{name}'; it has {', '.join(self.manifest.views)}."
                )
            self._views[name] = CachedView(self.folder, name, self.manifest)
        return self._views[name]

    def read(
        self, views: Sequence[str], drawn: NDArray[np.int64], rows: NDArray[np.int64], *, maps: bool
    ) -> tuple[Tensor, Geometry]:
        """The features of some rows of the image table, each in a view of its own, and the geometry of the views.

        Args:
            views: names.
            drawn: B, which of the views to read of each row.
            rows: B rows of the image table.
            maps: B×D×G×G spatial features, cells last in memory; otherwise B×D pooled ones.
        """
        shape = self.manifest.cells_of_row if maps else (self.manifest.channels,)
        features = np.empty((len(rows), *shape), np.float32)
        packed = np.empty((len(rows), 7), np.float32)
        for number, name in enumerate(views):
            places = np.flatnonzero(drawn == number)
            if not len(places):
                continue
            view = self.view(name)
            at = view.find(rows[places])
            if maps:
                view.read_cells(at, features, places)
            else:
                features[places] = view.pooled(at)
            packed[places] = view.geometry[at]
        inputs = torch.from_numpy(features)
        return inputs.permute(0, 3, 1, 2) if maps else inputs, unpack_geometry(packed)


def check_lengths(folder: Path, manifest: Manifest) -> None:
    """Refuse a cache with a file that is missing or not as long as the manifest says."""
    for view in manifest.views:
        for path, problem in wrong_lengths(folder, view, manifest):
            raise damaged(path, problem)


def wrong_lengths(folder: Path, view: str, manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """Files of a view that are missing or not as long as the manifest says, and what is wrong with each."""
    for name, file in manifest.views[view].files.items():
        path = folder / "views" / view / name
        found = path.stat().st_size if path.is_file() else None
        if found is None:
            yield path, "is missing"
        elif found != file.bytes:
            yield path, f"has {found:,} bytes instead of {file.bytes:,}"


def damaged(path: Path, problem: str) -> TagfillError:
    """The error for a file of a view."""
    return TagfillError(
        f"{path} of the feature cache {problem}; delete the folder {path.parent} and run 'tagfill features' again, "
        "which makes this view anew."
    )
