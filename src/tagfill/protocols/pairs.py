"""Known (image, label) pairs of a label matrix, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import UNKNOWN, LabelMatrix

BLOCK_PAIRS = 1 << 20


@dataclass(frozen=True)
class Pairs:
    """Pairs and their labels.

    Attributes:
        image: row of the label matrix.
        label: class.
        value: 1 present, 0 absent.
    """

    image: NDArray[np.int64]
    label: NDArray[np.int64]
    value: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.image)

    def take(self, which: NDArray[np.integer] | NDArray[np.bool_] | slice) -> Pairs:
        """Some of the pairs, by mask, position or slice."""
        return Pairs(self.image[which], self.label[which], self.value[which])

    def matrix(self, shape: tuple[int, int]) -> LabelMatrix:
        """The pairs as the label matrix in which nothing else is known."""
        return LabelMatrix.from_entries(self.image, self.label, self.value, shape)


def joined(parts: Sequence[Pairs]) -> Pairs:
    """Several lots of pairs as one."""
    if not parts:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))
    return Pairs(
        np.concatenate([part.image for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


def known(labels: LabelMatrix, block: int = BLOCK_PAIRS) -> Iterator[Pairs]:
    """All pairs that are present or absent, in order, about `block` at a time and never part of an image."""
    first = 0
    while first < len(labels):
        last = int(np.searchsorted(labels.starts, labels.starts[first] + block, side="right")) - 1
        last = min(max(last, first + 1), len(labels))
        entries = slice(labels.starts[first], labels.starts[last])
        image = np.repeat(np.arange(first, last), np.diff(labels.starts[first : last + 1]))
        pairs = Pairs(image, labels.classes[entries].astype(np.int64), labels.values[entries])
        yield pairs.take(pairs.value != UNKNOWN) if (pairs.value == UNKNOWN).any() else pairs
        first = last


def thin(labels: LabelMatrix, keep: Callable[[Pairs], NDArray[np.bool_]]) -> LabelMatrix:
    """The label matrix of those known pairs that `keep` says to keep."""
    counts = np.zeros(len(labels) + 1, dtype=np.int64)
    classes, values = [np.empty(0, np.int32)], [np.empty(0, np.int8)]
    for pairs in known(labels):
        kept = pairs.take(keep(pairs))
        if len(kept):
            first, last = kept.image[0], kept.image[-1]
            counts[first + 1 : last + 2] += np.bincount(kept.image - first)
        classes.append(kept.label.astype(np.int32))
        values.append(kept.value)
    return LabelMatrix(np.cumsum(counts), np.concatenate(classes), np.concatenate(values), labels.width)
