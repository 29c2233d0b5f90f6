"""mAP-loc: whether the map of a class lights up on the object, on the images that show it.

    IoA-P(pred, truth) = |pred ∩ truth| / |pred|,   0 where pred is empty

pred is the map of a class, scaled to 0…1 and cut at τ; truth is the union of the masks or boxes of the class. Unlike
IoU it does not require the whole object: the head of the cat is enough, the sofa beside it is wrong. A detection is an
image with the score of a class; it is correct if the image shows the class and IoA-P ≥ 0.5. Average precision ranks all
images, recall is measured over all images that show the class, and mAP-loc is the mean over classes and τ in 0.6, 0.7,
0.8, 0.9.

Only images that show a class need its map, so the cost grows with positives and not with images × classes.

PatchML: Patch Based Learning for Multi-label Image Classification defines the set of τ, the 0.5 and the name. Chosen
here: maps are resized to the truth bilinearly, then scaled by their own minimum and maximum (`minmax`); or the sigmoid
of the resized logits is taken (`sigmoid`). Coupled attention maps are treated as maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.metrics.average_precision import average_precision
from tagfill.probabilities import sigmoid

THRESHOLDS = (0.6, 0.7, 0.8, 0.9)
_LEAST_OVERLAP = 0.5
_MAPS_AT_ONCE = 64
_UNPLACED = -2  # a positive without a known location

Scaling = Literal["minmax", "sigmoid"]


def intersection_over_prediction(
    maps: NDArray[np.floating],
    truth: NDArray[np.bool_],
    *,
    thresholds: tuple[float, ...] = THRESHOLDS,
    scaling: Scaling = "minmax",
) -> NDArray[np.float64]:
    """IoA-P of class maps at each threshold.

    Args:
        maps: n×h×w, one for each pair of image and class.
        truth: n×H×W, where the class is.
        thresholds: τ; a pixel is predicted where the scaled map is at least τ.
        scaling: "minmax" or "sigmoid". With minmax, a constant map predicts nothing.

    Returns:
        n×T.

    Example:
        >>> maps, truth = np.array([[[0.0, 1.0]]]), np.array([[[False, False, True, True]]])
        >>> intersection_over_prediction(maps, truth, thresholds=(0.2, 0.9)).round(2)
        array([[0.67, 1.  ]])
    """
    if scaling not in ("minmax", "sigmoid"):
        raise ValueError(f"There is no scaling '{scaling}' of maps. Known: minmax, sigmoid.")
    found = np.zeros((len(maps), len(thresholds)))
    down, across = (bilinear_weights(maps.shape[axis], truth.shape[axis]) for axis in (1, 2))
    for start in range(0, len(maps), _MAPS_AT_ONCE):
        part = slice(start, start + _MAPS_AT_ONCE)
        resized = _scaled(down @ maps[part].astype(np.float64) @ across.T, scaling)
        for column, threshold in enumerate(thresholds):
            predicted = resized >= threshold
            area = predicted.sum((1, 2))
            found[part, column] = (predicted & truth[part]).sum((1, 2)) / np.maximum(area, 1)
    return found


def bilinear_weights(small: int, large: int) -> NDArray[np.float64]:
    """Weights of bilinear interpolation along one axis, large×small; half-pixel centers, with repeated edges.

    >>> bilinear_weights(2, 4).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    place = np.clip((np.arange(large) + 0.5) * small / large - 0.5, 0, small - 1)
    low = np.minimum(place.astype(np.int64), max(small - 2, 0))
    weights = np.zeros((large, small))
    rows = np.arange(large)
    weights[rows, low] += 1 - (place - low)
    weights[rows, np.minimum(low + 1, small - 1)] += place - low
    return weights


def _scaled(maps: NDArray[np.float64], scaling: Scaling) -> NDArray[np.float64]:
    if scaling == "sigmoid":
        return sigmoid(maps)
    least, largest = (edge(maps, axis=(1, 2), keepdims=True) for edge in (np.min, np.max))
    extent = largest - least
    return np.where(extent > 0, (maps - least) / np.where(extent > 0, extent, 1), 0.0)


class LocalizationMeter:
    """Accumulates scores, labels and overlaps of images, in any order, each image once; 6 bytes per image and class.

    Args:
        classes: number of classes.
        thresholds: τ, at most eight.

    Example:
        >>> meter = LocalizationMeter(1, thresholds=(0.6,))
        >>> meter.update([[0.9], [0.8]], [[1], [1]], [0, 1], [0, 0], [[0.7], [0.2]])
        >>> meter.compute().average_precision
        array([[0.5]])
    """

    def __init__(self, classes: int, *, thresholds: tuple[float, ...] = THRESHOLDS) -> None:
        if len(thresholds) > 8:
            raise ValueError("At most eight thresholds are supported, one bit each.")
        self._thresholds = thresholds
        self._scores: list[NDArray[np.float32]] = [np.empty((0, classes), np.float32)]
        self._labels: list[NDArray[np.int8]] = [np.empty((0, classes), np.int8)]
        self._hits: list[NDArray[np.uint8]] = [np.empty((0, classes), np.uint8)]

    def update(
        self, scores: ArrayLike, labels: ArrayLike, image: ArrayLike, label: ArrayLike, overlap: ArrayLike
    ) -> None:
        """Add a batch.

        Args:
            scores: B×L.
            labels: B×L, 1 present, 0 absent, -1 unknown.
            image: n rows of the batch, of the positives with a known location.
            label: n, their classes.
            overlap: n×T, their `intersection_over_prediction`.
        """
        state: NDArray[np.int8] = np.array(labels, np.int8)
        at = np.asarray(image, np.int64), np.asarray(label, np.int64)
        right = np.asarray(overlap).reshape(len(at[0]), len(self._thresholds)) >= _LEAST_OVERLAP
        hits: NDArray[np.uint8] = np.zeros(state.shape, np.uint8)
        hits[at] = right @ (1 << np.arange(len(self._thresholds))).astype(np.uint8)
        placed = np.zeros(state.shape, bool)
        placed[at] = True
        state[(state == POSITIVE) & ~placed] = _UNPLACED
        self._scores.append(np.array(scores, np.float32))
        self._labels.append(state)
        self._hits.append(hits)

    def merge(self, other: LocalizationMeter) -> None:
        """Add the content of another meter, such as that of another process."""
        self._scores += other._scores
        self._labels += other._labels
        self._hits += other._hits

    def compute(self) -> LocalizationScores:
        """Average precision of the images added so far."""
        scores, state, hits = np.concatenate(self._scores), np.concatenate(self._labels), np.concatenate(self._hits)
        placed, unplaced = (state == POSITIVE).sum(0), (state == _UNPLACED).sum(0)
        values = np.full((state.shape[1], len(self._thresholds)), np.nan)
        for column in range(len(self._thresholds)):
            right = (hits >> column) & 1
            labels = np.where(state == POSITIVE, right, np.where(state == NEGATIVE, NEGATIVE, UNKNOWN)).astype(np.int8)
            found = average_precision(scores, labels) * right.sum(0) / np.maximum(placed, 1)
            values[:, column] = np.where(placed > 0, np.nan_to_num(found), np.nan)
        return LocalizationScores(values, self._thresholds, placed, unplaced)


@dataclass(frozen=True)
class LocalizationScores:
    """How well class maps localize objects.

    Attributes:
        average_precision: L×T fractions; NaN for a class without a located positive.
        thresholds: the τ of the columns.
        placed: positives of each class with a known location.
        unplaced: positives of each class without one, which are left out.
    """

    average_precision: NDArray[np.float64]
    thresholds: tuple[float, ...]
    placed: NDArray[np.int64]
    unplaced: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """mAP-loc, the mean over classes and thresholds; NaN if no class has one."""
        return _mean(self.average_precision)

    def means(self) -> dict[float, float]:
        """The mean over classes at each threshold."""
        return {at: _mean(column) for at, column in zip(self.thresholds, self.average_precision.T, strict=True)}


def _mean(values: NDArray[np.float64]) -> float:
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")


def rank_correlation(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """Spearman's rank correlation of each pair of rows, such as two class maps; equal values share their mean rank.

    Args:
        first: n×m.
        second: n×m, or 1×m to compare all rows with one.

    Returns:
        n values in -1…1; NaN where all values of a row are equal.

    Example:
        >>> rank_correlation([[1.0, 2.0, 9.0], [3.0, 2.0, 2.0]], [[0.1, 0.2, 0.3]]).round(3)
        array([ 1.   , -0.866])
    """
    ranks = [_ranks(np.asarray(values)) for values in (first, second)]
    a, b = (each - each.mean(axis=1, keepdims=True) for each in ranks)
    norm = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    found: NDArray[np.float64] = np.full(max(len(a), len(b)), np.nan)
    np.divide((a * b).sum(axis=1), norm, out=found, where=norm > 0)
    return found


def _ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Ranks within each row, from 0; equal values share their mean rank."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    new = np.ones(values.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    last = np.ones(values.shape, dtype=bool)
    last[:, :-1] = new[:, 1:]
    begin = np.maximum.accumulate(np.where(new, places, 0), axis=1)
    end = np.minimum.accumulate(np.where(last, places, values.shape[1])[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape, dtype=np.float64)
    np.put_along_axis(ranks, order, (begin + end) / 2, axis=1)
    return ranks
