"""The feature cache: what a frozen backbone says about recorded views of each image, on disk.

    manifest.json                what it was made from, what it holds, how far it got
    views/<name>/rows.npy        rows of the image table that the view covers, ascending
    views/<name>/geometry.npy    left, top, right, bottom, flip_x, flip_y of each
    views/<name>/pooled.npy      n×D float32, the mean over cells
    views/<name>/NNNNN.npy       shards of n×G×G×D, cells last: uint8 steps of a bounded activation, else float16

A cache depends on the ordered list of images, the backbone's weights and its preprocessing, and on nothing else: a
changed label does not touch it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.files import write_json
from tagfill.images import Geometry
from tagfill.models import Preprocessing

VERSION = 1
SHARD_ROWS = 1024


@dataclass
class ViewRecord:
    """What a cache holds of one view: its role (`eval` or `weak`), its rows, and how many of them are done."""

    role: str
    rows: int
    done: int = 0


@dataclass
class Manifest:
    """What a cache was made from and how far it got."""

    images: str
    backbone: str
    fingerprint: str
    preprocessing: dict[str, Any]
    grid: tuple[int, int]
    channels: int
    dtype: str
    step: float  # of uint8 features; 1 for floating ones
    seed: int
    views: dict[str, ViewRecord] = field(default_factory=dict)
    version: int = VERSION

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        write_json(folder / "manifest.json", asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read it back."""
        path = folder / "manifest.json"
        if not path.is_file():
            raise TagfillError(
                f"{folder} is not a feature cache: it has no manifest.json. Make one with 'tagfill features'."
            )
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("version") != VERSION:
            raise TagfillError(
                f"{folder} was made by another version of Tagfill; make it again with 'tagfill features'."
            )
        views = {name: ViewRecord(**record) for name, record in content.pop("views").items()}
        return cls(**{**content, "grid": tuple(content["grid"]), "views": views})


def shard_path(folder: Path, view: str, shard: int) -> Path:
    """Where a shard of spatial features lies."""
    return folder / "views" / view / f"{shard:05d}.npy"


def pack_geometry(geometry: Geometry) -> NDArray[np.float32]:
    """n×6: box, flip_x, flip_y; cached views are always exact."""
    return np.concatenate([geometry.box, geometry.flip_x[:, None], geometry.flip_y[:, None]], axis=1, dtype=np.float32)


def unpack_geometry(packed: NDArray[np.float32]) -> Geometry:
    """Back from `pack_geometry`."""
    return Geometry(packed[:, :4].copy(), packed[:, 4] > 0, packed[:, 5] > 0, np.ones(len(packed), dtype=bool))


class CachedView:
    """The features of one view, memory-mapped."""

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self._manifest = manifest
        self._count = -(-manifest.views[name].rows // SHARD_ROWS)
        self._folder, self._name = folder, name
        self.rows = self._load("rows.npy")
        self.geometry = self._load("geometry.npy")

    @cached_property
    def _pooled(self) -> NDArray[np.float32]:
        return self._load("pooled.npy", mmap=True)

    @cached_property
    def _shards(self) -> list[NDArray[Any]]:
        return [self._load(f"{shard:05d}.npy", mmap=True) for shard in range(self._count)]

    def _load(self, name: str, *, mmap: bool = False) -> NDArray[Any]:
        path = self._folder / "views" / self._name / name
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
        return array

    def find(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where these rows of the image table lie in this view."""
        at = np.searchsorted(self.rows, rows)
        if not np.array_equal(self.rows[np.minimum(at, len(self.rows) - 1)], rows):
            raise TagfillError(f"The view '{self._name}' of the feature cache does not cover all images asked for.")
        return at

    def pooled(self, at: NDArray[np.int64]) -> NDArray[np.float32]:
        """Mean features at these places, B×D."""
        return self._pooled[at]

    def cells(self, at: NDArray[np.int64]) -> NDArray[Any]:
        """Spatial features at these places as they are stored, B×G×G×D."""
        return np.stack([self._shards[place // SHARD_ROWS][place % SHARD_ROWS] for place in at.tolist()])


class FeatureCache:
    """A complete cache, opened for reading."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._views: dict[str, CachedView] = {}

    @classmethod
    def open(cls, folder: str | Path, dataset: Dataset | None = None) -> FeatureCache:
        """Open a cache; with a dataset, check that it was made from the same images."""
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if undone := [name for name, view in manifest.views.items() if view.done < view.rows]:
            raise TagfillError(
                f"The feature cache {folder} is not complete (view '{undone[0]}'); run 'tagfill features' again."
            )
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
        """Views to train on: all of them, the plain one first."""
        return tuple(self.manifest.views)

    def view(self, name: str) -> CachedView:
        """One view."""
        if name not in self._views:
            if name not in self.manifest.views:
                raise TagfillError(
                    f"The feature cache {self.folder} has no view '{name}'; it has {', '.join(self.weak_views)}."
                )
            self._views[name] = CachedView(self.folder, name, self.manifest)
        return self._views[name]

    def read(self, views: NDArray[np.str_], rows: NDArray[np.int64], *, maps: bool) -> tuple[Tensor, Geometry]:
        """The features of some rows of the image table, each in a view of its own, and the geometry of the views.

        Args:
            views: B names.
            rows: B rows of the image table.
            maps: B×D×G×G spatial features, cells last in memory; otherwise B×D pooled ones.
        """
        shape = (
            (len(rows), *self.manifest.grid, self.manifest.channels) if maps else (len(rows), self.manifest.channels)
        )
        stored = np.empty(shape, dtype=self.manifest.dtype if maps else np.float32)
        packed = np.empty((len(rows), 6), dtype=np.float32)
        for name in np.unique(views):
            places, view = np.flatnonzero(views == name), self.view(str(name))
            at = view.find(rows[places])
            stored[places] = view.cells(at) if maps else view.pooled(at)
            packed[places] = view.geometry[at]
        features = torch.from_numpy(stored).float()
        if maps:
            features = (features * self.manifest.step).permute(0, 3, 1, 2)
        return features, unpack_geometry(packed)
