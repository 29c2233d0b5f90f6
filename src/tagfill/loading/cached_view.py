"""One view of a feature cache: what the backbone says about each image in it, memory-mapped."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.images import Geometry
from tagfill.loading.encoding import from_bytes
from tagfill.loading.manifest import Manifest


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
    def _token(self) -> NDArray[np.float32]:
        return self._load("token.npy", (self._count, self._manifest.channels), mmap=True)

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

    def token(self, at: NDArray[np.int64]) -> NDArray[np.float32]:
        """Class tokens at these places, B×D."""
        return self._token[at]

    def read_cells(self, at: NDArray[np.int64], out: NDArray[np.float32], places: NDArray[np.int64]) -> None:
        """Spatial features at these places of the view, G×G×D each, into these places of `out`."""
        size = self._manifest.shard_rows
        for source, target in zip(at.tolist(), places.tolist(), strict=True):
            shard, row = divmod(source, size)
            if self._manifest.dtype == "uint8":
                from_bytes(self._shards[shard][row], self._scales[shard], out[target])
            else:
                out[target] = self._shards[shard][row]


def damaged(path: Path, problem: str) -> TagfillError:
    """The error for a file of a view."""
    return TagfillError(
        f"{path} of the feature cache {problem}; delete the folder {path.parent} and run 'tagfill features' again, "
        "which makes this view anew."
    )
