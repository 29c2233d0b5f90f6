"""Average precision of each class, and its mean: how well scores rank the images that show a class above the rest.

    step    AP = Σ_k (R_k − R_{k−1}) P_k        over the distinct scores v_1 > v_2 > …, without interpolation
    rank    AP = mean over positives of the precision at their rank, tied images one after the other
    voc12   like step, with P_k replaced by the best precision at that recall or a higher one
    voc07   mean over R = 0, 0.1, …, 1 of the best precision at that recall or a higher one

P_k and R_k are the precision and recall of "score ≥ v_k". Recall only rises where positives are, so step equals

    AP = (1/|P|) Σ_{p ∈ P} TP(s_p) / N(s_p)

with TP(v) positives and N(v) images of score ≥ v: two sorts and two binary searches per class, and images of equal
score count together. The best precision at a recall is always reached at a positive, so the other definitions need
nothing more.

The definitions differ by about a point and must not be compared with each other. Step is that of scikit-learn's
`average_precision_score`, used by Cole et al. (CVPR 2021) and work that builds on their code; rank that of the code of
ASL, CSL and Hill, in whose reversed sort the later of two tied images comes first; voc12 that of Query2Label; voc07
that of PASCAL VOC up to 2009. Values are fractions in 0…1; only displays multiply by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN

Definition = Literal["step", "rank", "voc12", "voc07"]
Empty = Literal["skip", "zero"]
RECALL_LEVELS = tuple(level / 100 for level in range(101))
"""At which `precision_at_recall` is given."""


def average_precision(scores: ArrayLike, labels: ArrayLike, *, definition: Definition = "step") -> NDArray[np.float64]:
    """Average precision of each class, over the images whose label is known.

    Args:
        scores: N×L; logits or probabilities, since only their order matters.
        labels: N×L, 1 present, 0 absent, -1 unknown. Unknown entries are left out, class by class.
        definition: one of the names above.

    Returns:
        L fractions. A class without a known positive has no average precision: NaN.

    Raises:
        ValueError: if shapes disagree, a score is NaN, a label is none of 1, 0, -1, or there is no such definition.

    Example:
        >>> scores = [[0.9, 0.2], [0.8, 0.6], [0.4, 0.6]]
        >>> average_precision(scores, [[1, 0], [0, 0], [1, -1]]).round(4)
        array([0.8333,    nan])
    """
    if definition not in _OF_ONE_CLASS:
        raise ValueError(f"There is no average precision '{definition}'. Known: {', '.join(_OF_ONE_CLASS)}.")
    of_one_class = _OF_ONE_CLASS[definition]
    scores, labels = checked(scores, labels)
    result = np.full(scores.shape[1], np.nan)
    for column, score, label in class_blocks(scores, labels):
        if label.min(initial=NEGATIVE) == UNKNOWN:
            known = label != UNKNOWN
            score, label = score[known], label[known]
        positive = np.flatnonzero(label == POSITIVE)
        if len(positive):
            result[column] = of_one_class(score, positive)
    return result


def mean_average_precision(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    empty: Empty = "skip",
    definition: Definition = "step",
) -> float:
    """Mean of the classes' average precision, as a fraction in 0…1.

    Args:
        scores: N×L; logits or probabilities.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        empty: how a class without a known positive or without a known negative counts. "skip", as in CSL: not at all,
            since there is nothing to rank. "zero", as in the code of Cole et al. and of Large Loss: as 0 without a
            positive if any label is known, and as 1 without a negative.
        definition: of average precision, one of the names above.

    Returns:
        The mean, or NaN if no class counts.

    Example:
        >>> scores, labels = [[0.9, 0.2], [0.8, 0.6], [0.4, 0.6]], [[1, 0], [0, 0], [1, 0]]
        >>> [round(mean_average_precision(scores, labels, empty=rule), 4) for rule in ("skip", "zero")]
        [0.8333, 0.4167]
    """
    values = counted_average_precision(scores, labels, empty=empty, definition=definition)
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")


def counted_average_precision(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    empty: Empty = "skip",
    definition: Definition = "step",
) -> NDArray[np.float64]:
    """Average precision of each class as it enters the mean; NaN for a class that does not count.

    Means of groups of classes take these values, so that groups of equal size average to the mean over all classes.

    Args:
        scores: N×L; logits or probabilities.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        empty: how a class without a known positive or without a known negative counts, see `mean_average_precision`.
        definition: of average precision, one of the names above.

    Example:
        >>> scores, labels = [[0.9, 0.2], [0.8, 0.6], [0.4, 0.6]], [[1, 0], [0, 0], [1, 0]]
        >>> counted_average_precision(scores, labels, empty="zero").round(4)
        array([0.8333, 0.    ])
    """
    values = average_precision(scores, labels, definition=definition)
    if empty == "zero":
        known = (np.asarray(labels) != UNKNOWN).any(axis=0)
        return np.where(np.isnan(values) & known, 0.0, values)
    if empty == "skip":
        return nan_without_negatives(values, labels)
    raise ValueError(f"There is no rule '{empty}' for classes without positives. Known: skip, zero.")


def nan_without_negatives(values: NDArray[np.float64], labels: ArrayLike) -> NDArray[np.float64]:
    """Replace the values of classes without a known negative by NaN.

    Such a class has nothing that its positives could be ranked above; its average precision is perfect for any scores.

    Args:
        values: L, one per class.
        labels: N×L, 1 present, 0 absent, -1 unknown.

    >>> nan_without_negatives(np.array([0.5, 1.0]), [[1, 1], [0, -1]])
    array([0.5, nan])
    """
    return np.where((np.asarray(labels) == NEGATIVE).any(axis=0), values, np.nan)


def precision_at_recall(scores: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """The best precision that is possible at each recall of `RECALL_LEVELS` or a higher one, for curves.

    Args:
        scores: N×L; logits or probabilities.
        labels: N×L, 1 present, 0 absent, -1 unknown.

    Returns:
        L×101 fractions; NaN for a class without a known positive.

    Example:
        >>> curve = precision_at_recall([[0.9], [0.8], [0.4]], [[1], [0], [1]])[0]
        >>> curve[[0, 50, 51, 100]].round(2)
        array([1.  , 1.  , 0.67, 0.67])
    """
    scores, labels = checked(scores, labels)
    curves = np.full((scores.shape[1], len(RECALL_LEVELS)), np.nan)
    levels = np.arange(len(RECALL_LEVELS))
    for column, score, label in class_blocks(scores, labels):
        known = label != UNKNOWN
        score, label = score[known], label[known]
        positive = np.flatnonzero(label == POSITIVE)
        if n := len(positive):
            best = np.maximum.accumulate(_precision_at_positives(score, positive))  # of a recall of (n − i) / n or more
            curves[column] = best[np.minimum(n - -(-levels * n // (len(levels) - 1)), n - 1)]
    return curves


def group_means(values: ArrayLike, annotations: ArrayLike, *, groups: int = 5) -> NDArray[np.float64]:
    """Mean value of each group of classes, from the rarest to the most frequent; NaNs are left out.

    OpenImages V3 is reported this way: 5,000 classes sorted by their number of verified annotations in the training
    data, five groups of 1,000, G1 the rarest.

    Args:
        values: L, such as average precisions, NaN where a class has none.
        annotations: L, number of annotations of each class in training; ties keep the order of classes.
        groups: how many, of equal size; the first ones have one class more if L is not divisible.

    Returns:
        One mean per group, rarest first; NaN for a group without values.

    Example:
        >>> group_means([0.2, 0.8, np.nan, 0.6], [5, 100, 1, 50], groups=2)
        array([0.2, 0.7])
    """
    values, annotations = np.asarray(values, dtype=np.float64), np.asarray(annotations)
    if values.shape != annotations.shape or values.ndim != 1:
        raise ValueError(f"Values {values.shape} and annotations {annotations.shape} must both be (classes,).")
    if not 1 <= groups <= max(len(values), 1):
        raise ValueError(f"{len(values)} classes do not make {groups} groups.")
    members = np.array_split(values[np.argsort(annotations, kind="stable")], groups)
    counted = [group[~np.isnan(group)] for group in members]
    return np.array([group.mean() if len(group) else np.nan for group in counted])


def _precision_at_positives(scores: NDArray[np.generic], positive: NDArray[np.int64]) -> NDArray[np.float64]:
    """TP / N at the score of each positive, ascending by score; tied images count together."""
    positives, known = np.sort(scores[positive]), np.sort(scores)
    at_least = len(known) - np.searchsorted(known, positives, side="left")
    positives_at_least = len(positives) - np.searchsorted(positives, positives, side="left")
    return positives_at_least / at_least


def _step(scores: NDArray[np.generic], positive: NDArray[np.int64]) -> float:
    return float(np.mean(_precision_at_positives(scores, positive)))


def _rank(scores: NDArray[np.generic], positive: NDArray[np.int64]) -> float:
    order = np.argsort(scores, kind="stable")[::-1]
    rank = np.flatnonzero(np.isin(order, positive, kind="table")) + 1
    return float(np.mean(np.arange(1, len(rank) + 1) / rank))


def _voc12(scores: NDArray[np.generic], positive: NDArray[np.int64]) -> float:
    return float(np.mean(np.maximum.accumulate(_precision_at_positives(scores, positive))))


def _voc07(scores: NDArray[np.generic], positive: NDArray[np.int64]) -> float:
    best = np.maximum.accumulate(_precision_at_positives(scores, positive))  # of a recall of (n − i) / n or more
    n = len(best)
    tenths = np.arange(11)
    return float(np.mean(best[np.minimum(n - -(-tenths * n // 10), n - 1)]))  # whole numbers: 3 / 10 < 0.3 in floats


_OF_ONE_CLASS: dict[str, Callable[[NDArray[np.generic], NDArray[np.int64]], float]] = {
    "step": _step,
    "rank": _rank,
    "voc12": _voc12,
    "voc07": _voc07,
}


# Classes are made contiguous in tiles that fit into a core's cache: four times as fast as one class at a time.
_CLASSES_AT_ONCE = 64
_ROWS_AT_ONCE = 512


def checked(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Scores and labels as N×L arrays; half precision becomes single, which sorts faster and keeps the order.

    Raises:
        ValueError: if the shapes disagree.

    Example:
        >>> checked(np.zeros((3, 2), np.float16), np.zeros((3, 2)))[0].dtype
        dtype('float32')
    """
    scores, labels = np.asarray(scores), np.asarray(labels)
    if scores.ndim != 2 or scores.shape != labels.shape:
        raise ValueError(f"Scores {scores.shape} and labels {labels.shape} must both be (images, classes).")
    return scores.astype(np.float32) if scores.dtype == np.float16 else scores, labels


def class_blocks(
    scores: NDArray[np.generic], labels: NDArray[np.generic]
) -> Iterator[tuple[int, NDArray[np.generic], NDArray[np.generic]]]:
    """Column, scores and labels of each class, contiguous.

    Raises:
        ValueError: for a NaN score or an invalid label, naming the first.

    Example:
        >>> [(at, s.tolist(), z.tolist()) for at, s, z in class_blocks(np.eye(2), np.array([[1, 0], [0, -1]]))]
        [(0, [1.0, 0.0], [1, 0]), (1, [0.0, 1.0], [0, -1])]
    """
    for start in range(0, scores.shape[1], _CLASSES_AT_ONCE):
        block = slice(start, start + _CLASSES_AT_ONCE)
        block_scores, block_labels = _class_major(scores[:, block]), _class_major(labels[:, block])
        _check_block(block_scores, block_labels, start)
        for offset, (score, label) in enumerate(zip(block_scores, block_labels, strict=True)):
            yield start + offset, score, label


def _class_major(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """The transpose, contiguous."""
    transposed = np.empty(values.shape[::-1], values.dtype)
    for start in range(0, len(values), _ROWS_AT_ONCE):
        transposed[:, start : start + _ROWS_AT_ONCE] = values[start : start + _ROWS_AT_ONCE].T
    return transposed


def _check_block(scores: NDArray[np.generic], labels: NDArray[np.generic], first_class: int) -> None:
    """Raise for a NaN score or an invalid label in a class-major block, naming the first."""
    if not scores.size:
        return
    integers = labels.dtype.kind in "iu" and labels.min() >= UNKNOWN and labels.max() <= POSITIVE
    for found, what in (
        (np.isnan(scores), "The score is NaN"),
        (np.False_ if integers else ~np.isin(labels, (POSITIVE, NEGATIVE, UNKNOWN)), "The label is none of 1, 0, -1"),
    ):
        if found.any():
            label, image = np.argwhere(found)[0]
            raise ValueError(f"{what} in row {image}, column {first_class + label}; {found.sum()} such entries there.")
