"""Nearest photos and a map of photos, from cached features.

Photos are compared by the cosine of their pooled features relative to the mean m of all photos:

    similarity(i, j) = cos(x_i − m, x_j − m)

Without the mean, features that are never negative, as after a ReLU, would make all photos look alike. The map shows the
directions (x − m) / |x − m| on the two axes along which they vary most (principal components). The axes come from a
sample of the photos, so that everything here takes time linear in photos × channels; features are read from disk in
blocks and never copied as a whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tagfill.data.feature_cache import FeatureCache
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

AXES_FROM = 10_000  # photos from which the axes of the map are computed
MAX_POINTS = 100_000  # of the map; more cannot be told apart, and take long to draw
_BLOCK = 4096  # photos read at a time
_KEPT_SIMILARITIES = 8


@dataclass(frozen=True)
class PhotoMap:
    """Where photos are on the map.

    Attributes:
        rows: n, rows of the image table, ascending; without photos that could not be decoded.
        positions: n×2.
        share: part of the variation of the directions that the two axes show, of the photos that the axes come from.
    """

    rows: NDArray[np.int64]
    positions: NDArray[np.float32]
    share: float


class FeatureSpace:
    """The pooled features of the photos of a dataset; safe to use from several threads.

    Args:
        cache: folder of a feature cache with the images of the dataset.
        dataset: the dataset.

    Raises:
        TagfillError: if the cache is damaged, lacks images, or has no features of the end of the backbone.
    """

    def __init__(self, cache: str | os.PathLike[str], dataset: Dataset) -> None:
        opened = FeatureCache.open(cache, dataset)
        if opened.manifest.inner:
            raise TagfillError(
                f"The feature cache {opened.folder} holds the output of the stage {opened.at}, which does not say "
                f"what photos have in common; run 'tagfill features {dataset.folder or 'DATASET'} --from "
                f"{opened.folder}' and give the new cache to --features."
            )
        self._view = opened.view("eval")
        self._at = self._view.find(opened.cached_rows(np.arange(len(dataset))))
        self._missing = np.array(sorted(opened.missing), dtype=np.int64)
        self._lock = threading.Lock()
        self._similarities = lru_cache(_KEPT_SIMILARITIES)(self._compute_similarities)

    def __len__(self) -> int:
        return len(self._at)

    def similarities(self, row: int) -> NDArray[np.float32]:
        """Similarity of each photo to one photo, from -1 to 1; NaN for photos that could not be decoded.

        Args:
            row: of the image table.

        Raises:
            TagfillError: if this photo could not be decoded.
        """
        with self._lock:
            return self._similarities(row)

    def map(self) -> PhotoMap:
        """The map, computed once."""
        with self._lock:
            return self._map

    def _compute_similarities(self, row: int) -> NDArray[np.float32]:
        mean, lengths = self._statistics
        if np.isnan(lengths[row]):
            raise TagfillError("This photo has no features, because it could not be decoded.")
        direction = (self._read(slice(row, row + 1))[0] - mean) / lengths[row]
        found = np.concatenate([block @ direction for _, block in self._blocks()])
        similarities: NDArray[np.float32] = (found - mean @ direction) / lengths
        return similarities

    @cached_property
    def _statistics(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean, D, and the distance of each photo from it, N; NaN for photos that could not be decoded."""
        decoded = np.ones(len(self), dtype=bool)
        decoded[self._missing] = False
        total = sum(block[decoded[part]].sum(0, dtype=np.float64) for part, block in self._blocks())
        mean = (total / max(1, int(decoded.sum()))).astype(np.float32)
        lengths = np.concatenate([np.linalg.norm(block - mean, axis=1) for _, block in self._blocks()])
        lengths = np.maximum(lengths, np.float32(1e-12))
        lengths[self._missing] = np.nan
        return mean, lengths

    @cached_property
    def _map(self) -> PhotoMap:
        mean, lengths = self._statistics
        decoded = np.flatnonzero(~np.isnan(lengths))
        sample = _spread(decoded, AXES_FROM)
        axes, share = principal_axes((self._read(sample) - mean) / lengths[sample, None])
        offsets = mean @ axes
        found = np.concatenate([block @ axes for _, block in self._blocks()])
        rows = _spread(decoded, MAX_POINTS)
        return PhotoMap(rows, ((found[rows] - offsets) / lengths[rows, None]).astype(np.float32), share)

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        for start in range(0, len(self), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield part, self._read(part)

    def _read(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        return np.asarray(self._view.pooled(self._at[rows]))


def principal_axes(vectors: NDArray[np.float32], count: int = 2) -> tuple[NDArray[np.float32], float]:
    """The directions along which vectors vary most, by subspace iteration; the cost is linear in n and D.

    Args:
        vectors: n×D.
        count: number of directions.

    Returns:
        D×count orthonormal directions, whose largest component is positive, and the share of the variation along them.

    >>> axes, share = principal_axes(np.array([[3, 0, 1], [-3, 0, 1], [0, 1, 1], [0, -1, 1]], np.float32))
    >>> np.abs(axes).round(2).tolist(), round(share, 2)
    ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], 1.0)
    """
    centered = vectors - vectors.mean(0)
    width = min(centered.shape[1], count + 8)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((centered.shape[1], width)))[0].astype(np.float32)
    for _ in range(20):
        basis = np.linalg.qr(centered.T @ (centered @ basis))[0]
    _, sizes, turns = np.linalg.svd(centered @ basis, full_matrices=False)
    axes = np.zeros((centered.shape[1], count), np.float32)
    found = basis @ turns[:count].T
    axes[:, : found.shape[1]] = found
    axes *= np.where(axes[np.abs(axes).argmax(0), np.arange(count)] < 0, -1, 1)
    variation = float(np.square(centered, dtype=np.float64).sum())
    share = float(np.square(sizes[:count], dtype=np.float64).sum()) / variation if variation > 0 else 1.0
    return axes, share


def _spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most `count` of these rows, evenly spread."""
    if len(rows) <= count:
        return rows
    return rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
