"""Per-class thresholds, and F1 of the labels that they give.

    F1 = 2 TP / (2 TP + FP + FN)               a class is predicted where its score is at least its threshold

Thresholds are chosen on one split, class by class, among all distinct scores, and applied to another (Soft Exposure's
mF1). CF1 is the harmonic mean of the mean precision and the mean recall of classes, OF1 that of all entries together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.metrics.arrays import NEGATIVE, POSITIVE, UNKNOWN, checked, class_blocks


def best_thresholds(scores: ArrayLike, labels: ArrayLike, *, default: float) -> NDArray[np.float64]:
    """For each class the score at which F1 is largest; of several, the highest.

    Args:
        scores: N×L; logits or probabilities.
        labels: N×L, 1 present, 0 absent, -1 unknown; unknown entries are left out.
        default: threshold of a class without a known positive, in the unit of the scores: 0.5 for probabilities, 0 for
            logits.

    Example:
        >>> best_thresholds([[0.9, 0.1], [0.4, 0.7], [0.2, 0.3]], [[1, 0], [1, 0], [0, 0]], default=0.5)
        array([0.4, 0.5])
    """
    scores, labels = checked(scores, labels)
    chosen = np.full(scores.shape[1], float(default))
    for column, score, label in class_blocks(scores, labels):
        known = label != UNKNOWN
        positive = label[known] == POSITIVE
        if not positive.any():
            continue
        order = np.argsort(score[known], kind="stable")[::-1]
        ranked, found = score[known][order], np.cumsum(positive[order])
        last = np.append(ranked[1:] != ranked[:-1], True)  # of the images that share a score
        f1 = 2 * found[last] / (np.flatnonzero(last) + 1 + found[-1])
        chosen[column] = ranked[last][np.argmax(f1)]
    return chosen


@dataclass(frozen=True)
class Counts:
    """Right and wrong labels of each class, over the known entries.

    Attributes:
        hits: L, predicted and present.
        false: L, predicted and absent.
        missed: L, present and not predicted.
    """

    hits: NDArray[np.int64]
    false: NDArray[np.int64]
    missed: NDArray[np.int64]

    @property
    def f1(self) -> NDArray[np.float64]:
        """F1 of each class, NaN where nothing is known to be present."""
        return _share(2 * self.hits, 2 * self.hits + self.false + self.missed, self.hits + self.missed > 0)

    @property
    def precision(self) -> NDArray[np.float64]:
        """Precision of each class, NaN where it is not predicted on an image that is known."""
        return _share(self.hits, self.hits + self.false, self.hits + self.false > 0)

    @property
    def recall(self) -> NDArray[np.float64]:
        """Recall of each class, NaN where nothing is known to be present."""
        return _share(self.hits, self.hits + self.missed, self.hits + self.missed > 0)

    @property
    def mean_f1(self) -> float:
        """Mean F1 over the classes that have one (mF1)."""
        values = self.f1[~np.isnan(self.f1)]
        return float(values.mean()) if len(values) else float("nan")

    @property
    def class_f1(self) -> float:
        """CF1; a class that is never predicted has precision 0."""
        seen = self.hits + self.missed > 0
        precision = np.nan_to_num(_share(self.hits, self.hits + self.false, seen))[seen]
        recall = _share(self.hits, self.hits + self.missed, seen)[seen]
        return _harmonic(float(precision.mean()), float(recall.mean())) if seen.any() else float("nan")

    @property
    def overall_f1(self) -> float:
        """OF1, F1 of all entries together."""
        hits, wrong = int(self.hits.sum()), int(self.false.sum() + self.missed.sum())
        return 2 * hits / (2 * hits + wrong) if hits + wrong else float("nan")


def count(scores: ArrayLike, labels: ArrayLike, thresholds: ArrayLike) -> Counts:
    """Compare the labels that thresholds give with the known ones.

    Args:
        scores: N×L, in the unit of the thresholds.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        thresholds: L, or one for all.

    Example:
        >>> count([[0.9, 0.1], [0.4, 0.7]], [[1, 1], [0, -1]], 0.3).f1
        array([0.66666667, 0.        ])
    """
    scores, labels = checked(scores, labels)
    predicted = scores >= np.asarray(thresholds)
    present, absent = labels == POSITIVE, labels == NEGATIVE
    return Counts(
        (predicted & present).sum(axis=0), (predicted & absent).sum(axis=0), (~predicted & present).sum(axis=0)
    )


def _share(part: NDArray[np.int64], whole: NDArray[np.int64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
    shares = np.full(len(part), np.nan)
    np.divide(part, whole, out=shares, where=where & (whole > 0))
    return shares


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0
