"""The feature cache: what a frozen backbone says about recorded views of each image, on disk.

    manifest.json                what it was made from, what it holds, how far it got; length and hash of every file
    views/<name>/rows.npy        rows of the image table that the view covers, ascending
    views/<name>/geometry.npy    left, top, right, bottom, flip_x, flip_y, exact of each
    views/<name>/pooled.npy      n×D float32, the mean over cells
    views/<name>/token.npy       n×D float32, the class token; only where the backbone has one
    views/<name>/NNNNN.npy       shards of n×G×G×D, cells last: bytes of a bounded activation, else float16
    views/<name>/scales.npy      shards×D, what bytes are multiplied with; only where there are bytes

A cache depends on the ordered list of images, the backbone's weights and its preprocessing, and on nothing else: a
changed label does not touch it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.images import Geometry
from tagfill.loading.cached_view import CachedView, damaged, unpack_geometry
from tagfill.loading.manifest import Manifest
from tagfill.loading.planned import strong_of, weak_of
from tagfill.models import Preprocessing


class FeatureCache:
    """A complete cache, opened for reading."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._views: dict[str, CachedView] = {}

    def __fspath__(self) -> str:
        """Its folder: a cache goes wherever the path of one does."""
        return str(self.folder)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], dataset: Dataset | None = None) -> FeatureCache:
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

    def only(self, views: Mapping[str, str]) -> FeatureCache:
        """The same cache without any other view than these, which must have the identities given beside their names."""
        for name, identity in views.items():
            if name not in self.manifest.views or self.manifest.views[name].identity != identity:
                raise TagfillError(
                    f"The view '{name}' of the feature cache {self.folder} is not the one any more that the run began "
                    "with; start a new run."
                )
        kept = {name: record for name, record in self.manifest.views.items() if name in views}
        return FeatureCache(self.folder, replace(self.manifest, views=kept))

    def require_tokens(self) -> None:
        """Refuse a cache without class tokens."""
        if not self.manifest.tokens:
            raise TagfillError(
                f"The feature cache {self.folder} holds no class tokens, which pool=token needs; make it anew in "
                "another folder with 'tagfill features', use images, or pool=gap."
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
        """The features of some rows of the image table, each in a view of its own, and the geometry of the views.

        Args:
            views: names.
            drawn: B, which of the views to read of each row.
            rows: B rows of the image table.
            maps: B×D×G×G spatial features, cells last in memory; otherwise B×D pooled ones.
            tokens: B×D class tokens instead of either.
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
                features[places] = view.token(at) if tokens else view.pooled(at)
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
