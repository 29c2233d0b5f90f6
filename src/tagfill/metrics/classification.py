"""Metrics of predicted labels: F1 at thresholds, the top k classes of an image, and confused classes.

    F1 = 2 TP / (2 TP + FP + FN)               a class is predicted where its score is at least its threshold

Thresholds are chosen on one split, class by class, among all distinct scores, and applied to another (Soft Exposure's
mF1). CF1 is the harmonic mean of the mean precision and the mean recall of classes, OF1 the F1 of all entries together.

Confusion of a pair (predicted a, shown b), over the images whose label of a is known to be absent:

    together = #{a predicted, b present}           false positives of a on images that show b
    expected = #{a predicted} · #{b present} / #{all of them}       if false positives were independent of b
    excess   = together − expected

A frequent class is present on many images with a false positive; the excess corrects for that. It finds buses called
trucks, not buses called "something with a person". Pairs are counted image by image, never for all pairs of classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.metrics.average_precision import Definition, average_precision, checked, class_blocks

_IMAGES_AT_ONCE = 4096
_CANDIDATES = 1000  # pairs of classes that are examined: those with the most images


def best_thresholds(scores: ArrayLike, labels: ArrayLike, *, default: float) -> NDArray[np.float64]:
    """The threshold of each class with the largest F1; the highest of several.

    Args:
        scores: N×L; logits or probabilities.
        labels: N×L, 1 present, 0 absent, -1 unknown; unknown entries are left out.
        default: threshold of a class without a known positive, in the unit of the scores: 0.5 for
            probabilities, 0 for logits.

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
        last = np.append(ranked[1:] != ranked[:-1], True)  # of the images with the same score
        f1 = 2 * found[last] / (np.flatnonzero(last) + 1 + found[-1])
        chosen[column] = ranked[last][np.argmax(f1)]
    return chosen


def roc_auc(scores: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Area under the ROC curve of each class: how often an image that shows it scores above one that does not.

    If tags are missing at random, and unknown labels are read as absent, it is a linear function of the true area, so
    that it ranks models as the complete labels would.

    Args:
        scores: N×L.
        labels: N×L, 1 present, 0 absent, -1 unknown (ignored).

    Returns:
        L; NaN for a class without a present or without an absent label.

    >>> roc_auc([[0.9], [0.2], [0.4], [0.4]], [[1], [0], [1], [0]])
    array([0.875])
    """
    score, label = checked(scores, labels)
    found = np.full(label.shape[1], np.nan)
    for column in range(label.shape[1]):
        present, absent = (score[label[:, column] == state, column] for state in (POSITIVE, NEGATIVE))
        if len(present) and len(absent):
            absent = np.sort(absent)
            below = np.searchsorted(absent, present, "left") + np.searchsorted(absent, present, "right")
            found[column] = below.mean() / (2 * len(absent))
    return found


@dataclass(frozen=True)
class Counts:
    """Correct and wrong labels of each class, over the known entries.

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
        """F1 of each class, NaN without a known positive."""
        return _share(2 * self.hits, 2 * self.hits + self.false + self.missed, self.hits + self.missed > 0)

    @property
    def precision(self) -> NDArray[np.float64]:
        """Precision of each class, NaN if it is never predicted on a known entry."""
        return _share(self.hits, self.hits + self.false, self.hits + self.false > 0)

    @property
    def recall(self) -> NDArray[np.float64]:
        """Recall of each class, NaN without a known positive."""
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
    """Compare the labels predicted by thresholds with the known ones.

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


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision and recall of the top k classes of an image, averaged over images.

    Attributes:
        precision: present labels among the top k, divided by k.
        recall: the same, divided by the number of present labels.
        images: number of images with a present label, which the means are over.
    """

    precision: float
    recall: float
    images: int


def precision_recall_at_k(scores: ArrayLike, labels: ArrayLike, k: int) -> PrecisionRecall:
    """Precision and recall of the top k known classes of each image that has a present label.

    Unknown labels are left out of the ranking; of equal scores, the class that comes first ranks first.

    Args:
        scores: N×L.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        k: at least 1; also the divisor of an image with fewer known classes.

    Example:
        >>> precision_recall_at_k([[0.9, 0.5, 0.1], [0.2, 0.8, 0.6]], [[1, 0, 1], [1, 0, 0]], k=2)
        PrecisionRecall(precision=0.25, recall=0.25, images=2)
    """
    scores, labels = checked(scores, labels)
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}.")
    present = labels == POSITIVE
    counted = present.any(axis=1)
    if not counted.any():
        return PrecisionRecall(float("nan"), float("nan"), 0)
    images = np.flatnonzero(counted)
    hits = np.empty(len(images), dtype=np.int64)
    for start in range(0, len(images), _IMAGES_AT_ONCE):  # so that scores are not copied whole
        rows = images[start : start + _IMAGES_AT_ONCE]
        known = np.where(labels[rows] == UNKNOWN, -np.inf, scores[rows].astype(np.float64))
        best = np.argsort(-known, axis=1, kind="stable")[:, :k]
        hits[start : start + _IMAGES_AT_ONCE] = np.take_along_axis(present[rows], best, axis=1).sum(axis=1)
    return PrecisionRecall(float(np.mean(hits / k)), float(np.mean(hits / present[images].sum(axis=1))), len(images))


def top1_accuracy(scores: ArrayLike, labels: ArrayLike) -> float:
    """Share of images whose top class is present; images without a present label are left out.

    With one label per image this is accuracy, with the label sets of ReaL it is top-1 ReaL. All classes take part in
    the ranking, known or not: a class outside the label set is a wrong answer.

    Example:
        >>> top1_accuracy([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]], [[1, 0], [1, 0], [0, 0]])
        0.5
    """
    scores, labels = checked(scores, labels)
    present = labels == POSITIVE
    counted = present.any(axis=1)
    if not counted.any():
        return float("nan")
    best = scores[counted].argmax(axis=1)
    return float(present[counted, :][np.arange(len(best)), best].mean())


def by_label_count(labels: ArrayLike, most: int = 4) -> dict[str, NDArray[np.int64]]:
    """Images by their number of present labels: 1, 2, …, and `most` or more; for ReaL mAP on such subsets.

    Example:
        >>> {name: rows.tolist() for name, rows in by_label_count([[1, 0], [1, 1], [0, 0]], most=2).items()}
        {'1': [0], '≥2': [1]}
    """
    count = (np.asarray(labels) == POSITIVE).sum(axis=1)
    exact = {str(number): np.flatnonzero(count == number) for number in range(1, most)}
    return {**exact, f"≥{most}": np.flatnonzero(count >= most)}


def mean_average_precision_by_label_count(
    scores: ArrayLike, labels: ArrayLike, most: int = 4, *, definition: Definition = "step"
) -> dict[str, tuple[float, int]]:
    """MAP over the images with 1, 2, …, `most` or more present labels, and the number of these images.

    A class without a positive among those images is left out of their mean. With the label sets of ReaL this is ReaL
    mAP by label count.

    Example:
        >>> scores, labels = [[0.9, 0.1], [0.8, 0.7], [0.3, 0.6]], [[1, 0], [1, 1], [1, 0]]
        >>> mean_average_precision_by_label_count(scores, labels, most=2)
        {'1': (1.0, 2), '≥2': (1.0, 1)}
    """
    scores, labels = checked(scores, labels)
    found = {}
    for name, rows in by_label_count(labels, most).items():
        values = average_precision(scores[rows], labels[rows], definition=definition)
        values = values[~np.isnan(values)]
        found[name] = float(values.mean()) if len(values) else float("nan"), len(rows)
    return found


@dataclass(frozen=True)
class Confusion:
    """A pair of classes of which one is predicted where the other is shown.

    Attributes:
        predicted: position of the class that is predicted, but absent.
        shown: position of the class that is present.
        together: number of such images.
        expected: their number by chance.
        rate: share of such images among those that show the one class and not the other.
    """

    predicted: int
    shown: int
    together: int
    expected: float
    rate: float

    @property
    def excess(self) -> float:
        """False positives beyond chance."""
        return self.together - self.expected


def confusions(called: ArrayLike, labels: ArrayLike, *, most: int = 10) -> list[Confusion]:
    """The pairs of classes with the largest excess, largest first; only those above chance.

    Args:
        called: N×L bool, where a class is predicted.
        labels: N×L, 1 present, 0 absent, -1 unknown; unknown entries are neither false positives nor shown.
        most: largest number of pairs to return.

    Example:
        >>> bus, truck = [1, 0], [0, 1]
        >>> found = confusions([[1, 1], [1, 0], [0, 1], [0, 0]], [bus, bus, truck, [0, 0]])
        >>> [(one.predicted, one.shown, one.together, round(one.expected, 2)) for one in found]
        [(1, 0, 1, 0.67)]
    """
    called, labels = np.asarray(called, dtype=bool), np.asarray(labels)
    if called.ndim != 2 or called.shape != labels.shape:
        raise ValueError(f"Predictions {called.shape} and labels {labels.shape} must both be (images, classes).")
    present, absent = labels == POSITIVE, labels == NEGATIVE
    false = called & absent
    pairs, together = _count_pairs(false, present)
    largest = np.argsort(-together, kind="stable")[:_CANDIDATES]
    found = []
    for pair, count in zip(pairs[largest].tolist(), together[largest].tolist(), strict=True):
        predicted, shown = divmod(pair, labels.shape[1])
        without = absent[:, predicted]
        both = int((without & present[:, shown]).sum())
        expected = int(false[:, predicted].sum()) * both / int(without.sum())
        found.append(Confusion(predicted, shown, count, expected, count / both))
    found.sort(key=lambda one: (-one.excess, one.predicted, one.shown))
    return [one for one in found if one.excess > 0][:most]


def _count_pairs(false: NDArray[np.bool_], present: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of a false positive and a present class of one image, as a·L + b, and the number of images of each."""
    known, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for start in range(0, len(false), _IMAGES_AT_ONCE):
        rows = slice(start, start + _IMAGES_AT_ONCE)
        (image, predicted), (shown_image, shown) = np.nonzero(false[rows]), np.nonzero(present[rows])
        first = np.searchsorted(shown_image, image, side="left")
        many = np.searchsorted(shown_image, image, side="right") - first  # classes present beside each false positive
        within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        keys = np.repeat(predicted * false.shape[1], many) + shown[np.repeat(first, many) + within]
        known, place = np.unique(np.concatenate([known, keys]), return_inverse=True)
        grown = np.zeros(len(known), np.int64)
        np.add.at(grown, place, np.append(counts, np.ones(len(keys), np.int64)))
        counts = grown
    return known, counts
