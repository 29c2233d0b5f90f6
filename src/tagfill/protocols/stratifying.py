"""Holding out images so that each class keeps its share: iterative stratification for two subsets.

The rarest class comes first. Each of its images goes to the subset that still wants most images of that class, then to
the one that wants most images at all; a subset that is full takes no more, so that sizes are exact. Images without a
positive fill what is left. Order and ties are decided by the numbers of images and classes, not by their positions.

Sechidis et al., On the Stratification of Multi-Label Data, ECML PKDD 2011.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, LabelMatrix
from tagfill.protocols.pair_numbers import PairNumbers


def stratified(labels: LabelMatrix, numbers: PairNumbers, held_out: int) -> NDArray[np.int64]:
    """Positions of `held_out` images whose positives are distributed like those of all images.

    >>> labels = LabelMatrix.from_dense(np.array([[1, 0]] * 8 + [[0, 1]] * 4))
    >>> numbers = PairNumbers.of([f"{i}.jpg" for i in range(12)], ["cat", "dog"], 0)
    >>> labels.rows(stratified(labels, numbers, 3)).sum(axis=0).tolist()
    [2, 1]
    """
    positive = labels.values == POSITIVE
    image, label = labels.images()[positive], labels.classes[positive]
    starts = np.searchsorted(image, np.arange(len(labels) + 1))
    by_label = np.lexsort((numbers.images[image], label))
    members = np.split(image[by_label], np.cumsum(np.bincount(label, minlength=labels.width))[:-1])
    remaining = np.bincount(label, minlength=labels.width)
    share = held_out / max(len(labels), 1)
    wanted = [[count * (1 - share) for count in remaining.tolist()], [count * share for count in remaining.tolist()]]
    room = [len(labels) - held_out, held_out]
    side = np.full(len(labels), -1, dtype=np.int8)
    while remaining.any():
        rarest = np.flatnonzero(remaining == remaining[remaining > 0].min())
        current = int(rarest[np.argmin(numbers.labels[rarest])])
        for member in members[current].tolist():
            if side[member] >= 0:
                continue
            chosen = _subset(wanted, room, current)
            side[member] = chosen
            room[chosen] -= 1
            shown = label[starts[member] : starts[member + 1]]
            remaining[shown] -= 1
            for other in shown.tolist():
                wanted[chosen][other] -= 1
    left = np.flatnonzero(side < 0)
    side[left[np.argsort(numbers.images[left])][: room[1]]] = 1
    return np.flatnonzero(side == 1)


def _subset(wanted: list[list[float]], room: list[int], label: int) -> int:
    """Where the next image of a class goes: 1 to be held out."""
    if not all(room):
        return int(room[1] > 0)
    return int((wanted[1][label], room[1]) > (wanted[0][label], room[0]))
