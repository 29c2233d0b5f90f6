"""A random number for each (image, label) pair that depends on the seed and on the two names alone.

The order of images, the number of processes and the version of a library cannot change it, and a pair keeps its number
when other images or classes come or go. Names are hashed once each; the sum of the two hashes is the state of a
splitmix64 generator, whose `step`-th output is the pair's number for its `step`-th decision.


Known (image, label) pairs of a label matrix, a bounded number at a time.

Exact numbers of pairs drawn at random without replacement: those whose numbers are the smallest.

The pairs are passed over in blocks. A pair becomes a candidate if its number lies below a threshold that lets through
slightly more than are wanted, so that memory grows with what is drawn and not with images × classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.labels import UNKNOWN, LabelMatrix
from tagfill.rng import GAMMA, in_unit_interval, mix

Step = int | NDArray[np.integer]


@dataclass(frozen=True)
class PairNumbers:
    """The numbers of N images and L classes.

    Attributes:
        images: N hashes of names.
        labels: L hashes of names.
    """

    images: NDArray[np.uint64]
    labels: NDArray[np.uint64]

    @classmethod
    def of(cls, images: Sequence[str], labels: Sequence[str], seed: int) -> PairNumbers:
        """The numbers of these names under a seed.

        >>> first, again = PairNumbers.of(["a", "b"], ["cat"], 7), PairNumbers.of(["b", "a"], ["cat"], 7)
        >>> first.at(np.array([0]), np.array([0])) == again.at(np.array([1]), np.array([0]))
        array([ True])
        """
        return cls(_hashes(images, f"{seed}\0image\0"), _hashes(labels, f"{seed}\0label\0"))

    def at(self, image: NDArray[np.integer], label: NDArray[np.integer], step: Step = 0) -> NDArray[np.uint64]:
        """Uniform 64-bit numbers of pairs; distinct steps, which may differ from pair to pair, are independent."""
        steps = np.atleast_1d(np.asarray(step, dtype=np.uint64))
        return mix(self.images[image] + self.labels[label] + steps * GAMMA)

    def uniform(self, image: NDArray[np.integer], label: NDArray[np.integer], step: Step = 0) -> NDArray[np.float64]:
        """The same numbers in [0, 1)."""
        return in_unit_interval(self.at(image, label, step))


def _hashes(names: Iterable[str], prefix: str) -> NDArray[np.uint64]:
    start = hashlib.blake2b(prefix.encode(), digest_size=8)

    def digest(name: str) -> bytes:
        state = start.copy()
        state.update(name.encode())
        return state.digest()

    return np.frombuffer(b"".join(map(digest, names)), dtype="<u8").astype(np.uint64)


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


Group = Callable[[Pairs], NDArray[np.int64]]
"""The group of each pair, from 0 on; -1 for pairs that cannot be drawn."""


def everything(pairs: Pairs) -> NDArray[np.int64]:
    """All pairs in one group."""
    return np.zeros(len(pairs), dtype=np.int64)


def smallest(
    labels: LabelMatrix, numbers: PairNumbers, wanted: NDArray[np.int64], group: Group = everything, step: int = 0
) -> Pairs:
    """Draw so many pairs of each group, or all of a group that has fewer.

    Args:
        labels: what is known.
        numbers: of the images and classes of `labels`.
        wanted: how many pairs of each group.
        group: which group a pair belongs to.
        step: which of the pairs' numbers decide.

    Returns:
        The drawn pairs, group after group, in the order in which they were drawn.
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
    """How many pairs of each group can be drawn."""
    if group is everything:
        return np.array([np.count_nonzero(labels.values != UNKNOWN)])
    available = np.zeros(size, dtype=np.int64)
    for pairs in known(labels):
        groups = group(pairs)
        available += np.bincount(groups[groups >= 0], minlength=size)
    return available


def _candidates(
    labels: LabelMatrix, numbers: PairNumbers, group: Group, share: NDArray[np.float64], step: int
) -> tuple[Pairs, NDArray[np.uint64], NDArray[np.int64]]:
    """Pairs whose number is among the lowest `share` of all numbers, with number and group."""
    highest = np.array([min(int(part * 2.0**64), 2**64 - 1) for part in share.tolist()], dtype=np.uint64)
    chosen, chosen_numbers, chosen_groups = [], [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for pairs in known(labels):
        groups = group(pairs)
        number = numbers.at(pairs.image, pairs.label, step)
        near = np.flatnonzero((groups >= 0) & (number <= highest[groups]))
        chosen.append(pairs.take(near))
        chosen_numbers.append(number[near])
        chosen_groups.append(groups[near])
    return joined(chosen), np.concatenate(chosen_numbers), np.concatenate(chosen_groups)
