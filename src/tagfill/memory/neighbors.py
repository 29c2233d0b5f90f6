"""Distances that Soft Exposure needs: the nearest images of each image, and how far classes are from each other.

Both are computed once from the features of a frozen network, scaled to length 1.

**Neighbors** are exact, by cosine distance, in bounded memory. Similarities are products of blocks in single precision,
which keep a few more candidates than are asked for. These are compared again in double precision, one pair at a time,
so that the result depends neither on the size of blocks nor on the number of processes; of equal distances the smaller
position comes first. Above a million images, where all pairs would take hours, faiss supplies the candidates: an IVF
index that searches the lists nearest to an image. It may miss a neighbor, except with a single list, as for small data.

**Classes** are compared by prototypes:

    ψ(c)    = elementwise median (or mean) of the features of the images with z_c = 1
    d(a, b) = 1 − cos(ψ(a), ψ(b))   or   ‖ψ(a) − ψ(b)‖

A class without known positives has no ψ; its distances are 1. So are those of a ψ that is zero, which has no direction.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.memory.base import Rows, Shard, Shared, Store

Search = Literal["auto", "exact", "faiss"]
PrototypeKind = Literal["median", "mean"]
DistanceKind = Literal["cosine", "euclidean"]

MILLION = 1_000_000
_QUERIES, _IMAGES = 512, 16384  # of a block: 32 MB of similarities
_SPARE = 16  # candidates beyond those asked for
_CROWD = 1024  # candidates that are compared again where many are equally near
_ROUNDING = 1e-5  # more than what single precision loses on a product of unit vectors
_LISTS_SEEN = 64  # of faiss's inverted file, for each query
_VALUES = 1 << 22  # features whose median is computed at a time


def unit_rows(features: NDArray[np.floating]) -> NDArray[np.float32]:
    """Features scaled to length 1, N×D; a row of zeros is left unchanged.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    unit = np.empty(features.shape, dtype=np.float32)
    for start in range(0, len(features), 4096):
        block = features[start : start + 4096].astype(np.float64)
        length = np.sqrt((block * block).sum(1, keepdims=True))
        unit[start : start + 4096] = block / np.where(length > 0, length, 1)
    return unit


def nearest(
    unit: NDArray[np.float32], queries: NDArray[np.int64], count: int, *, search: Search = "auto"
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the nearest other images of some images.

    Args:
        unit: N×D, rows of length 1.
        queries: n positions in `unit`.
        count: k, how many of each; at most N−1.
        search: "exact", "faiss", or "auto": exact up to a million images.

    Returns:
        n×k positions, nearest first, the smaller position first among equals; and their cosine distances.

    Example:
        >>> unit = unit_rows(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]))
        >>> nearest(unit, np.array([0]), 2)[0].tolist()
        [[1, 2]]
    """
    if not 0 <= count < max(len(unit), 1):
        raise ValueError(f"{len(unit)} images are too few for {count} neighbors each.")
    index = np.empty((len(queries), count), dtype=np.int64)
    distance = np.empty((len(queries), count), dtype=np.float32)
    faiss = _faiss_candidates(unit) if search == "faiss" or (search == "auto" and len(unit) > MILLION) else None
    wanted = min(count + _SPARE, len(unit) - 1)
    for start in range(0, len(queries) if count else 0, _QUERIES):
        block = queries[start : start + _QUERIES]
        candidates, crowded = _candidates(unit, block, count, wanted) if faiss is None else faiss(block, wanted)
        chosen, away = _compare(unit, block, candidates, count)
        for row in np.flatnonzero(crowded):
            chosen[row], away[row] = _compare_crowd(unit, block[row], float(1 - away[row, -1]), count)
        index[start : start + len(block)], distance[start : start + len(block)] = chosen, away
    return index, distance


def _candidates(
    unit: NDArray[np.float32], queries: NDArray[np.int64], count: int, wanted: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Candidates for each query, n×wanted, and whether others might be as near as the last neighbor needed."""
    table, asked, position = torch.from_numpy(unit), torch.from_numpy(unit[queries]), torch.from_numpy(queries)
    best = torch.full((len(queries), 0), -torch.inf)
    where = torch.empty((len(queries), 0), dtype=torch.int64)
    for start in range(0, len(unit), _IMAGES):
        similar = asked @ table[start : start + _IMAGES].T
        inside = torch.from_numpy(np.flatnonzero((queries >= start) & (queries < start + similar.shape[1])))
        similar[inside, position[inside] - start] = -torch.inf  # an image is not its own neighbor
        values, columns = similar.topk(min(wanted, similar.shape[1]))
        best, where = torch.cat([best, values], 1), torch.cat([where, columns + start], 1)
        best, kept = best.topk(min(wanted, best.shape[1]))
        where = where.gather(1, kept)
    crowded = best[:, -1] >= best[:, count - 1] - _ROUNDING
    return where.numpy(), crowded.numpy() & (wanted < len(unit) - 1)


def _similarity(unit: NDArray[np.float32], query: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cosine similarity of pairs, each summed alone and in one order."""
    products: NDArray[np.float64] = unit[query].astype(np.float64) * unit[other]
    return np.asarray(products.sum(-1))


def _compare(
    unit: NDArray[np.float32], queries: NDArray[np.int64], candidates: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest of the candidates, n×c, in their order."""
    candidates = np.sort(candidates, axis=1)
    similar = np.empty(candidates.shape, dtype=np.float64)
    for start in range(0, len(queries), 64):
        part = slice(start, start + 64)
        similar[part] = _similarity(unit, queries[part, None], candidates[part])
    order = np.argsort(-similar, axis=1, kind="stable")[:, :count]
    distance = np.clip(1 - np.take_along_axis(similar, order, 1), 0, 2)
    return np.take_along_axis(candidates, order, 1), distance.astype(np.float32)


def _compare_crowd(
    unit: NDArray[np.float32], query: np.int64, last: float, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Like `_compare`, for many near-ties with the last neighbor; keeps the first `_CROWD` of them by position."""
    similar = unit @ unit[query]
    similar[query] = -np.inf
    nearer = np.flatnonzero(similar > last + _ROUNDING)
    equal = np.flatnonzero(np.abs(similar - last) <= _ROUNDING)[:_CROWD]
    candidates = np.concatenate([nearer, equal])[None]
    index, distance = _compare(unit, np.array([query]), candidates, count)
    return index[0], distance[0]


def _faiss_candidates(unit: NDArray[np.float32]) -> Any:
    """A function with the result of `_candidates` that searches with faiss."""
    try:
        faiss = importlib.import_module("faiss")
    except ImportError:
        raise TagfillError(
            f"Neighbors of {len(unit):,} images need faiss; run: pip install 'tagfill[faiss]', or set the "
            "option search to exact, which takes long."
        ) from None
    lists = max(1, int(np.sqrt(len(unit))) // 4)
    file = faiss.IndexIVFFlat(faiss.IndexFlatIP(unit.shape[1]), unit.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    file.train(unit[:: max(1, len(unit) // (64 * lists))])
    file.add(unit)
    file.nprobe = _LISTS_SEEN

    def candidates(queries: NDArray[np.int64], wanted: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        _, found = file.search(unit[queries], wanted + 1)
        others = np.empty((len(queries), wanted), dtype=np.int64)
        for row, query in enumerate(queries):
            seen = found[row][(found[row] >= 0) & (found[row] != query)][:wanted]
            if len(seen) < wanted:  # the lists are too short: fill up with the first images
                more = np.setdiff1d(np.arange(min(len(unit), 2 * wanted + 2)), np.append(seen, query))
                seen = np.concatenate([seen, more])[:wanted]
            others[row] = seen
        return others, np.zeros(len(queries), dtype=bool)

    return candidates


class Neighbors(Store):
    """The nearest training images of each image of this rank.

    Args:
        labels: of the training images.
        shard: the images of this rank; neighbors may be images of other ranks.
        count: k; with fewer than k other images, all of them.

    Attributes:
        index: n×k int32, positions in the training set, nearest first.
        distance: n×k float32, cosine distances.
        ready: whether they were computed or loaded.
    """

    index: Tensor
    distance: Tensor
    ready: bool = False

    def __init__(self, labels: LabelMatrix, shard: Shard, *, count: int) -> None:
        self._count = min(count, max(len(labels) - 1, 0))
        super().__init__(shard, index=Rows((self._count,), torch.int32), distance=Rows((self._count,)))

    def fill(self, unit: NDArray[np.float32], *, search: Search = "auto") -> None:
        """Find the neighbors by the features of all training images, N×D with rows of length 1."""
        index, distance = nearest(unit, self._shard.index, self._count, search=search)
        self.index, self.distance = torch.from_numpy(index.astype(np.int32)), torch.from_numpy(distance)
        self.ready = True

    def read(self, index: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and distances of these images' neighbors, B×k, nearest first."""
        rows = self._shard.rows(index)
        return self.index.numpy()[rows].astype(np.int64), self.distance.numpy()[rows]

    def _after_load(self) -> None:
        self.ready = True


def class_prototypes(
    unit: NDArray[np.float32], labels: LabelMatrix, kind: PrototypeKind = "median"
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Compute ψ of each class.

    Args:
        unit: N×D features with rows of length 1.
        labels: of the N images.
        kind: median or mean over the images of a class.

    Returns:
        L×D, zeros for a class without positives; and L bool, which classes have any.

    Example:
        >>> labels = LabelMatrix.from_dense(np.array([[1, -1], [1, 0]]))
        >>> psi, defined = class_prototypes(np.eye(2, dtype=np.float32), labels, "mean")
        >>> psi.tolist(), defined.tolist()
        ([[0.5, 0.5], [0.0, 0.0]], [True, False])
    """
    present = labels.values == POSITIVE
    image, label = labels.images()[present], labels.classes[present]
    order = np.argsort(label, kind="stable")
    image, bounds = image[order], np.searchsorted(label[order], np.arange(labels.width + 1))
    found = np.zeros((labels.width, unit.shape[1]), dtype=np.float32)
    middle = np.median if kind == "median" else np.mean
    for c in range(labels.width):
        shown = image[bounds[c] : bounds[c + 1]]
        step = max(1, _VALUES // max(len(shown), 1))
        for start in range(0, unit.shape[1] if len(shown) else 0, step):
            columns = np.arange(start, min(start + step, unit.shape[1]))
            found[c, columns] = middle(unit[shown[:, None], columns], axis=0)
    return found, np.diff(bounds) > 0


def prototype_distances(
    psi: NDArray[np.float32], defined: NDArray[np.bool_], kind: DistanceKind = "cosine"
) -> NDArray[np.float32]:
    """Compute the distance of each pair of classes, L×L.

    Args:
        psi: L×D.
        defined: L, which classes have a ψ; the others are at distance 1 from all.
        kind: of distance.

    Example:
        >>> prototype_distances(np.array([[1, 0], [0, 2], [0, 0]], np.float32), np.array([True, True, False])).tolist()
        [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
    """
    if kind == "cosine":
        unit = unit_rows(psi).astype(np.float64)
        away = 1 - unit @ unit.T
        defined = defined & (unit != 0).any(1)
    else:
        wide = psi.astype(np.float64)
        square = (wide * wide).sum(1)
        away = np.sqrt(np.maximum(square[:, None] + square - 2 * wide @ wide.T, 0))
    np.fill_diagonal(away, 0)
    both = defined[:, None] & defined
    return np.where(both, np.maximum(away, 0), 1).astype(np.float32)


class ClassDistances(Store):
    """The distance of each pair of classes, the same on every rank.

    Attributes:
        values: L×L.
        ready: whether they were computed or loaded.
    """

    values: Tensor
    ready: bool = False

    def __init__(self, shard: Shard, width: int) -> None:
        super().__init__(shard, values=Shared((width, width), fill=1))

    def fill(
        self, unit: NDArray[np.float32], labels: LabelMatrix, *, prototype: PrototypeKind, distance: DistanceKind
    ) -> None:
        """Compute the distances from the features of all training images, N×D with rows of length 1."""
        self.values = torch.from_numpy(prototype_distances(*class_prototypes(unit, labels, prototype), distance))
        self.ready = True

    def _after_load(self) -> None:
        self.ready = True
