"""Which classes are predicted where another one is shown instead.

For a pair (predicted a, shown b), over the images whose label of a is known to be absent:

    together = #{a predicted, b present}           false alarms of a on images that show b
    expected = #{a predicted} · #{b present} / #{all of them}       if false alarms fell on them by chance
    excess   = together − expected

A frequent class is shown beside every mistake; the excess is what remains of that: buses called trucks, not buses
called "something with a person". Counts are made image by image, from false alarms and present labels, and never for
all pairs of classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.metrics.arrays import NEGATIVE, POSITIVE

CANDIDATES = 1000
"""Pairs that are looked at more closely: those with the most images."""

_IMAGES_AT_ONCE = 4096


@dataclass(frozen=True)
class Confusion:
    """A class that is predicted where another is shown.

    Attributes:
        predicted: position of the class that is predicted, but absent.
        shown: position of the class that is present.
        together: images of this kind.
        expected: how many there would be by chance.
        rate: share of the images that show the one, and not the other, on which the other is predicted.
    """

    predicted: int
    shown: int
    together: int
    expected: float
    rate: float

    @property
    def excess(self) -> float:
        """False alarms beyond chance."""
        return self.together - self.expected


def confusions(called: ArrayLike, labels: ArrayLike, *, most: int = 10) -> list[Confusion]:
    """The pairs of classes with the largest excess, largest first; only those above chance.

    Args:
        called: N×L bool, where a class is predicted.
        labels: N×L, 1 present, 0 absent, -1 unknown; unknown entries are neither false alarms nor shown.
        most: pairs to give.

    Example:
        >>> bus, truck = [1, 0], [0, 1]
        >>> found = confusions([[1, 1], [1, 0], [0, 1], [0, 0]], [bus, bus, truck, [0, 0]])
        >>> [(one.predicted, one.shown, one.together, round(one.expected, 2)) for one in found]
        [(1, 0, 1, 0.67)]
    """
    called, labels = np.asarray(called, dtype=bool), np.asarray(labels)
    if called.ndim != 2 or called.shape != labels.shape:
        raise ValueError(f"What is called {called.shape} and labels {labels.shape} must both be (images, classes).")
    present, absent = labels == POSITIVE, labels == NEGATIVE
    false = called & absent
    pairs, together = _count_pairs(false, present)
    largest = np.argsort(-together, kind="stable")[:CANDIDATES]
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
    """Pairs of a false alarm and a present class of one image, as a·L + b, and on how many images each occurs."""
    known, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for start in range(0, len(false), _IMAGES_AT_ONCE):
        rows = slice(start, start + _IMAGES_AT_ONCE)
        (image, predicted), (shown_image, shown) = np.nonzero(false[rows]), np.nonzero(present[rows])
        first = np.searchsorted(shown_image, image, side="left")
        many = np.searchsorted(shown_image, image, side="right") - first  # classes shown beside each false alarm
        within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        keys = np.repeat(predicted * false.shape[1], many) + shown[np.repeat(first, many) + within]
        known, place = np.unique(np.concatenate([known, keys]), return_inverse=True)
        grown = np.zeros(len(known), np.int64)
        np.add.at(grown, place, np.append(counts, np.ones(len(keys), np.int64)))
        counts = grown
    return known, counts
