"""Known (image, label) pairs of a label matrix, and exact numbers of them drawn at random without replacement.

Pairs are processed in blocks. Those with the smallest random numbers are drawn; a pair becomes a candidate if its
number is below a threshold that lets through slightly more than are wanted, so that memory grows with the number of
drawn pairs and not with images × classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.labels import UNKNOWN, LabelMatrix
from tagfill.rng import PairNumbers

BLOCK_PAIRS = 1 << 20


@dataclass(frozen=True)
class Pairs:
    """(image, label) pairs and their values.

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
        """The label matrix in which only these pairs are known."""
        return LabelMatrix.from_entries(self.image, self.label, self.value, shape)


def concat_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Concatenate pairs."""
    if not parts:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))
    return Pairs(
        np.concatenate([part.image for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


def known_pairs(labels: LabelMatrix, block: int = BLOCK_PAIRS) -> Iterator[Pairs]:
    """Iterate over all pairs that are present or absent, about `block` at a time; an image is never divided."""
    first = 0
    while first < len(labels):
        last = int(np.searchsorted(labels.starts, labels.starts[first] + block, side="right")) - 1
        last = min(max(last, first + 1), len(labels))
        entries = slice(labels.starts[first], labels.starts[last])
        image = np.repeat(np.arange(first, last), np.diff(labels.starts[first : last + 1]))
        pairs = Pairs(image, labels.classes[entries].astype(np.int64), labels.values[entries])
        yield pairs.take(pairs.value != UNKNOWN) if (pairs.value == UNKNOWN).any() else pairs
        first = last


def keep_pairs(labels: LabelMatrix, keep: Callable[[Pairs], NDArray[np.bool_]]) -> LabelMatrix:
    """The label matrix of the known pairs for which `keep` returns true."""
    counts = np.zeros(len(labels) + 1, dtype=np.int64)
    classes, values = [np.empty(0, np.int32)], [np.empty(0, np.int8)]
    for pairs in known_pairs(labels):
        kept = pairs.take(keep(pairs))
        if len(kept):
            first, last = kept.image[0], kept.image[-1]
            counts[first + 1 : last + 2] += np.bincount(kept.image - first)
        classes.append(kept.label.astype(np.int32))
        values.append(kept.value)
    return LabelMatrix(np.cumsum(counts), np.concatenate(classes), np.concatenate(values), labels.width)


Group = Callable[[Pairs], NDArray[np.int64]]
"""The group of each pair, counted from 0; -1 for pairs that cannot be drawn."""


def one_group(pairs: Pairs) -> NDArray[np.int64]:
    """All pairs in one group."""
    return np.zeros(len(pairs), dtype=np.int64)


def sample_pairs(
    labels: LabelMatrix, numbers: PairNumbers, wanted: NDArray[np.int64], group: Group = one_group, step: int = 0
) -> Pairs:
    """Draw a number of pairs of each group, or all pairs of a group that has fewer.

    Args:
        labels: whose known pairs are drawn from.
        numbers: of the images and classes of `labels`.
        wanted: number of pairs of each group.
        group: returns the group of each pair.
        step: which of the numbers of a pair decides, see `PairNumbers`.

    Returns:
        The drawn pairs, group after group, in the order of the draw.
    """
    available = _available(labels, group, len(wanted))
    wanted = np.minimum(wanted, available)
    slack = 0
    while True:
        share = (wanted + 6 * np.sqrt(wanted) + 16) * 2.0**slack / np.maximum(available, 1)
        drawn, number, groups = _candidates(labels, numbers, group, np.where(wanted > 0, share, 0.0), step)
        if (np.bincount(groups, minlength=len(wanted)) >= wanted).all():
            break
        slack += 1
    order = np.lexsort((numbers.images[drawn.image], number, groups))  # equal numbers belong to different images
    groups = groups[order]
    rank = np.arange(len(order)) - np.searchsorted(groups, groups)
    return drawn.take(order[rank < wanted[groups]])


def _available(labels: LabelMatrix, group: Group, size: int) -> NDArray[np.int64]:
    """The number of pairs of each group that can be drawn."""
    if group is one_group:
        return np.array([np.count_nonzero(labels.values != UNKNOWN)])
    available = np.zeros(size, dtype=np.int64)
    for pairs in known_pairs(labels):
        groups = group(pairs)
        available += np.bincount(groups[groups >= 0], minlength=size)
    return available


def _candidates(
    labels: LabelMatrix, numbers: PairNumbers, group: Group, share: NDArray[np.float64], step: int
) -> tuple[Pairs, NDArray[np.uint64], NDArray[np.int64]]:
    """Pairs whose number is among the lowest `share` of all numbers, with number and group."""
    highest = np.array([min(int(part * 2.0**64), 2**64 - 1) for part in share.tolist()], dtype=np.uint64)
    chosen, chosen_numbers, chosen_groups = [], [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for pairs in known_pairs(labels):
        groups = group(pairs)
        number = numbers.bits(pairs.image, pairs.label, step)
        near = np.flatnonzero((groups >= 0) & (number <= highest[groups]))
        chosen.append(pairs.take(near))
        chosen_numbers.append(number[near])
        chosen_groups.append(groups[near])
    return concat_pairs(chosen), np.concatenate(chosen_numbers), np.concatenate(chosen_groups)
