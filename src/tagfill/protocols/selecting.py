"""Exact numbers of pairs drawn at random without replacement: those whose numbers are the smallest.

The pairs are passed over in blocks. A pair becomes a candidate if its number lies below a threshold that lets through
slightly more than are wanted, so that memory grows with what is drawn and not with images × classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import UNKNOWN, LabelMatrix
from tagfill.protocols.pair_numbers import PairNumbers
from tagfill.protocols.pairs import Pairs, joined, known

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
