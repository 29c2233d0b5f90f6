"""What stands at the top of an image's scores: precision and recall of the best k, and whether the best one is right.

Among equal scores the class that comes first is taken. Unknown labels count neither as right nor as wrong: they are
left out of the image's ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.metrics.arrays import POSITIVE, UNKNOWN, checked
from tagfill.metrics.average_precision import Definition, average_precision

_IMAGES_AT_ONCE = 4096


@dataclass(frozen=True)
class AtK:
    """Means over images.

    Attributes:
        precision: present labels among the best k, over k.
        recall: the same, over the number of present labels.
        images: number of images with a present label, over which the means are.
    """

    precision: float
    recall: float
    images: int


def at_k(scores: ArrayLike, labels: ArrayLike, k: int) -> AtK:
    """Precision and recall of the k best-scored known classes of each image that has a present label.

    Args:
        scores: N×L.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        k: at least 1; an image with fewer known classes is divided by k all the same.

    Example:
        >>> at_k([[0.9, 0.5, 0.1], [0.2, 0.8, 0.6]], [[1, 0, 1], [1, 0, 0]], k=2)
        AtK(precision=0.25, recall=0.25, images=2)
    """
    scores, labels = checked(scores, labels)
    if k < 1:
        raise ValueError(f"k counts classes and is at least 1, not {k}.")
    present = labels == POSITIVE
    counted = present.any(axis=1)
    if not counted.any():
        return AtK(float("nan"), float("nan"), 0)
    images = np.flatnonzero(counted)
    hits = np.empty(len(images), dtype=np.int64)
    for start in range(0, len(images), _IMAGES_AT_ONCE):  # so that scores are not copied whole
        rows = images[start : start + _IMAGES_AT_ONCE]
        known = np.where(labels[rows] == UNKNOWN, -np.inf, scores[rows].astype(np.float64))
        best = np.argsort(-known, axis=1, kind="stable")[:, :k]
        hits[start : start + _IMAGES_AT_ONCE] = np.take_along_axis(present[rows], best, axis=1).sum(axis=1)
    return AtK(float(np.mean(hits / k)), float(np.mean(hits / present[images].sum(axis=1))), len(images))


def top_1(scores: ArrayLike, labels: ArrayLike) -> float:
    """Share of images whose best-scored class is present; images without a present label are left out.

    With one label an image this is accuracy, with the label sets of ReaL it is top-1 ReaL. Here every class takes part
    in the ranking, known or not: a class outside the set is a wrong answer.

    Example:
        >>> top_1([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]], [[1, 0], [1, 0], [0, 0]])
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
    """MAP over the images with 1, 2, …, `most` or more present labels, and how many images that are.

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
