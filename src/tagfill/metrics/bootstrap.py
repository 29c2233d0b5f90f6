"""Bootstrap interval of mAP over images: how much it varies with the sample of test images.

    AP_b = Σ_p w_p TP_w(s_p) / N_w(s_p)  /  Σ_p w_p        w_i: how often resample b contains image i

with TP_w(v) and N_w(v) the weights of the positives and of the known images of score ≥ v. A resample is a vector of
weights, so each class is sorted once for all resamples, and the values equal those of `average_precision` on the
repeated rows. All classes of a resample use the same images, and its mAP leaves out classes without a positive in it.

    interval = percentiles of mAP_b + (mAP − mean mAP_b)

Resamples rank better than the images that they were drawn from, the more so the fewer positives there are: a positive
that is drawn twice is ranked next to itself. Plain percentiles (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, chapter 13) can therefore lie entirely above mAP; shifting their mean to mAP removes that bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.metrics.average_precision import checked, class_blocks, mean_average_precision

_RESAMPLES_AT_ONCE = 64  # a tile of weights, images × 64 bytes, stays in cache for up to some ten thousand images


@dataclass(frozen=True)
class Interval:
    """An interval of a mean.

    Attributes:
        low: its lower end, a fraction.
        high: its upper end.
        level: share of resamples inside.
        resamples: their number.
    """

    low: float
    high: float
    level: float
    resamples: int


def bootstrap_interval(
    scores: ArrayLike, labels: ArrayLike, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Bootstrap interval of mAP (definition `step`).

    Time grows with resamples × images × classes, about a nanosecond each; memory with 320 bytes per image.

    Args:
        scores: N×L; logits or probabilities.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        resamples: their number.
        level: share of resamples inside the interval.
        seed: of the draws.

    Example:
        >>> interval = bootstrap_interval([[0.9], [0.8], [0.4], [0.2]], [[1], [0], [1], [0]], resamples=200)
        >>> bool(interval.low < 0.8333 < interval.high)
        True
    """
    if resamples < 1 or not 0 < level < 1:
        raise ValueError(
            f"{resamples} resamples at level {level} make no interval; give at least 1 and a share in 0…1."
        )
    means = resampled_means(scores, labels, resamples=resamples, seed=seed)
    means = means[~np.isnan(means)]
    if not len(means):
        return Interval(float("nan"), float("nan"), level, resamples)
    moved = means - means.mean() + mean_average_precision(scores, labels)
    low, high = np.clip(np.quantile(moved, [(1 - level) / 2, (1 + level) / 2]), 0, 1)
    return Interval(float(low), float(high), level, resamples)


def resampled_means(scores: ArrayLike, labels: ArrayLike, *, resamples: int, seed: int = 0) -> NDArray[np.float64]:
    """MAP of each resample, over the classes with a positive and a negative in it; NaN if there is none.

    Example:
        >>> resampled_means([[0.9], [0.1]], [[1], [1]], resamples=3)
        array([nan, nan, nan])
    """
    scores, labels = checked(scores, labels)
    random = np.random.default_rng(seed)  # see `tagfill.rng`
    sums, counted = np.zeros(resamples), np.zeros(resamples, dtype=np.int64)
    orders = [_descending(score, label) for _, score, label in class_blocks(scores, labels)]
    for start in range(0, resamples, _RESAMPLES_AT_ONCE):
        stop = min(start + _RESAMPLES_AT_ONCE, resamples)
        weights = _weights(random, len(scores), stop - start)
        for images, positive, last in orders:
            values = _weighted(weights[images], positive, last)
            known = ~np.isnan(values)
            sums[start:stop][known] += values[known]
            counted[start:stop] += known
    return _shares(sums, counted)


def _descending(
    score: NDArray[np.generic], label: NDArray[np.generic]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The known images by descending score, the positions of positives among them, and the end of each one's tie."""
    known = np.flatnonzero(label != UNKNOWN)
    order = known[np.argsort(score[known], kind="stable")[::-1]]
    positive = np.flatnonzero(label[order] == POSITIVE)
    ranked = score[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True)) if len(order) else np.empty(0, np.intp)
    return order, positive, ends[np.searchsorted(ends, positive)]


def _weights(random: np.random.Generator, images: int, resamples: int) -> NDArray[np.uint8]:
    """How often each resample contains each image: N×B. No image is drawn 256 times in practice."""
    drawn = random.integers(0, images, (resamples, images)) + images * np.arange(resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=resamples * images).reshape(resamples, images)
    return np.ascontiguousarray(counts.T.astype(np.uint8))


def _weighted(weights: NDArray[np.uint8], positive: NDArray[np.intp], last: NDArray[np.intp]) -> NDArray[np.float64]:
    """Average precision of one class in each resample, from the weights of its images by descending score."""
    if not len(positive):
        return np.full(weights.shape[1], np.nan)
    at_least = np.cumsum(weights, axis=0, dtype=np.int32)[last]
    own = weights[positive].astype(np.int32)
    through = np.searchsorted(positive, last, side="right") - 1  # the last positive of the same tie
    positives_at_least = np.cumsum(own, axis=0)[through]
    precision = np.divide(positives_at_least, at_least, out=np.zeros(own.shape), where=at_least > 0)
    drawn = own.sum(axis=0)
    values = _shares((own * precision).sum(axis=0), drawn)
    values[weights.sum(axis=0, dtype=np.int64) == drawn] = np.nan  # nothing to rank them above
    return values


def _shares(part: NDArray[np.float64], whole: NDArray[np.integer]) -> NDArray[np.float64]:
    """NaN where there is nothing to divide by."""
    shares = np.full(len(part), np.nan)
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares
