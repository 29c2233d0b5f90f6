"""Average precision of each class, and its mean: how well scores rank the images that show a class above the rest.

    AP = Σ_k (R_k − R_{k−1}) P_k          over the distinct scores v_1 > v_2 > …, without interpolation

P_k and R_k are the precision and recall of "score ≥ v_k". Recall only rises where positives are, so this equals

    AP = (1/|P|) Σ_{p ∈ P} TP(s_p) / N(s_p)

with TP(v) positives and N(v) images of score ≥ v: two sorts and two binary searches a class, and images of equal
score count together. This is the definition "step", that of scikit-learn's `average_precision_score`, used by Cole
et al. (CVPR 2021) and those who build on their code. Values are fractions in 0…1; only displays multiply by 100.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

POSITIVE = 1
NEGATIVE = 0
UNKNOWN = -1

CLASSES_AT_ONCE = 64
"""Classes are made contiguous in blocks: one strided pass over memory for each block and not for each class."""


def average_precision(scores: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Average precision of each class, over the images whose label is known.

    Args:
        scores: N×L; logits or probabilities, since only their order matters.
        labels: N×L, 1 present, 0 absent, -1 unknown. Unknown entries are left out, class by class.

    Returns:
        L fractions. A class without a known positive has no average precision: NaN.

    Raises:
        ValueError: if shapes disagree, a score is NaN, or a label is none of 1, 0, -1.

    Example:
        >>> scores = [[0.9, 0.2], [0.8, 0.6], [0.4, 0.6]]
        >>> average_precision(scores, [[1, 0], [0, 0], [1, -1]]).round(4)
        array([0.8333,    nan])
    """
    scores, labels = _checked(scores, labels)
    result = np.full(scores.shape[1], np.nan)
    for start in range(0, scores.shape[1], CLASSES_AT_ONCE):
        block = slice(start, start + CLASSES_AT_ONCE)
        block_scores, block_labels = np.ascontiguousarray(scores[:, block].T), np.ascontiguousarray(labels[:, block].T)
        _refuse_oddities(block_scores, block_labels, start)
        for offset, (score, label) in enumerate(zip(block_scores, block_labels, strict=True)):
            result[start + offset] = _of_one_class(score[label == POSITIVE], score[label != UNKNOWN])
    return result


def mean_average_precision(scores: ArrayLike, labels: ArrayLike, *, empty: Literal["skip", "zero"] = "skip") -> float:
    """Mean of the classes' average precision, as a fraction in 0…1.

    Args:
        scores: N×L; logits or probabilities.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        empty: what a class without a known positive counts: nothing ("skip"), or 0 as long as something is known
            about it ("zero", the habit of the code of Cole et al. and of Large Loss). How many such classes there
            are: the NaNs of `average_precision`.

    Returns:
        The mean, or NaN if no class counts.

    Example:
        >>> scores, labels = [[0.9, 0.2], [0.8, 0.6], [0.4, 0.6]], [[1, 0], [0, 0], [1, 0]]
        >>> [round(mean_average_precision(scores, labels, empty=rule), 4) for rule in ("skip", "zero")]
        [0.8333, 0.4167]
    """
    values = average_precision(scores, labels)
    if empty == "zero":
        known = (np.asarray(labels) != UNKNOWN).any(axis=0)
        values = np.where(np.isnan(values) & known, 0.0, values)
    elif empty != "skip":
        raise ValueError(f"There is no rule '{empty}' for classes without positives. Known: skip, zero.")
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")


def _of_one_class(positives: NDArray[np.generic], known: NDArray[np.generic]) -> float:
    """The second formula above, from the scores of the positives and of all images with a known label."""
    if not len(positives):
        return float("nan")
    positives, known = np.sort(positives), np.sort(known)
    at_least = len(known) - np.searchsorted(known, positives, side="left")
    positives_at_least = len(positives) - np.searchsorted(positives, positives, side="left")
    return float(np.mean(positives_at_least / at_least))


def _checked(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Both as arrays of one N×L shape; half precision becomes single, which sorts faster and keeps the order."""
    scores, labels = np.asarray(scores), np.asarray(labels)
    if scores.ndim != 2 or scores.shape != labels.shape:
        raise ValueError(f"Scores {scores.shape} and labels {labels.shape} must both be (images, classes).")
    return scores.astype(np.float32) if scores.dtype == np.float16 else scores, labels


def _refuse_oddities(scores: NDArray[np.generic], labels: NDArray[np.generic], first_class: int) -> None:
    """Raise for a NaN score or an unknown label code in a class-major block, naming its first place."""
    for found, what in (
        (np.isnan(scores), "The score is NaN"),
        (~np.isin(labels, (POSITIVE, NEGATIVE, UNKNOWN)), "The label is none of 1, 0, -1"),
    ):
        if found.any():
            label, image = np.argwhere(found)[0]
            raise ValueError(f"{what} in row {image}, column {first_class + label}; {found.sum()} such entries there.")
