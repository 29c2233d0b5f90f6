"""Which pairs are worth a look: the best of a stream, without keeping the rest.

    value = H(p) · −log₂(share of images that show the class)

H is the entropy of the probability in bits: nothing is learned from checking what is certain. The second factor is what
finding a class says, so rare classes come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

ORDERS = ("probability", "value")


@dataclass
class Pairs:
    """(image, label) pairs.

    Attributes:
        row: of the image table.
        label: class.
        probability: that the image shows the class.
        value: of checking it.
        annotated: 1, 0 or -1: what is known now.
    """

    row: NDArray[np.int64]
    label: NDArray[np.int64]
    probability: NDArray[np.float64]
    value: NDArray[np.float64]
    annotated: NDArray[np.int8]

    @classmethod
    def at(
        cls,
        where: NDArray[np.bool_],
        rows: NDArray[np.int64],
        probability: NDArray[np.float64],
        value: NDArray[np.float64],
        annotated: NDArray[np.integer],
    ) -> Pairs:
        """The pairs that a mask names.

        Args:
            where: n×L, which pairs.
            rows: n rows of the image table.
            probability: n×L.
            value: n×L.
            annotated: n×L, as `annotated` above.
        """
        image, label = np.nonzero(where)
        known = annotated[image, label].astype(np.int8)
        return cls(rows[image], label, probability[image, label], value[image, label], known)

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: NDArray[np.integer]) -> Pairs:
        """Some of them, in this order."""
        return Pairs(*(getattr(self, field.name)[which] for field in fields(self)))

    def joined(self, other: Pairs) -> Pairs:
        """These and those."""
        return Pairs(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


def no_pairs() -> Pairs:
    """None at all."""
    return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int8))


class Best:
    """The first so many pairs of a stream.

    Args:
        limit: how many are kept.
        per_class: how many of one class at most; None for no limit.
        rank: a number for each pair; larger comes first, and equal ones in the order of image and class.
    """

    def __init__(self, limit: int, per_class: int | None, rank: Callable[[Pairs], NDArray[np.float64]]) -> None:
        self._limit, self._per_class, self._rank = limit, per_class, rank
        self._held = no_pairs()

    def add(self, pairs: Pairs) -> None:
        """Consider more pairs."""
        self._held = self._held.joined(pairs)
        if len(self._held) > 4 * self._limit + 10_000:
            self._held = self.pairs()

    def pairs(self) -> Pairs:
        """The best so far, in their order."""
        order = np.lexsort((self._held.label, self._held.row, -self._rank(self._held)))
        if self._per_class is not None:
            order = order[within(self._held.label[order], self._per_class)]
        return self._held.take(order[: self._limit])


def within(groups: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Which entries are among the first so many of their group.

    >>> within(np.array([3, 1, 3, 3, 1]), 2).tolist()
    [True, True, True, False, True]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    begins = np.searchsorted(ordered, ordered)
    first = np.empty(len(groups), dtype=bool)
    first[order] = np.arange(len(groups)) - begins < most
    return first


def entropy(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """In bits.

    >>> entropy(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.where((probability <= 0) | (probability >= 1), 0.0, bits)


def rarity(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """What finding each class says, in bits, from the shares of images that show them.

    >>> rarity(np.array([1.0, 0.25])).tolist()
    [-0.0, 2.0]
    """
    return -np.log2(np.clip(shares, 1e-9, 1))


def wrongness(pairs: Pairs) -> NDArray[np.float64]:
    """The probability that what is known of a pair is not so."""
    return np.where(pairs.annotated == 1, 1 - pairs.probability, pairs.probability)
