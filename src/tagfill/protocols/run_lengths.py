"""Reading COCO's compressed run lengths without painting the mask.

A mask is read column by column as alternating runs, the first one of zeros. Each number is a little-endian row of
five-bit characters, of which all but the last have the sixth bit set and the last carries the sign; from the fourth
number on it is the difference to the run two before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def runs(compressed: bytes) -> NDArray[np.int64]:
    """Lengths of the alternating runs, the first one of zeros.

    >>> runs(b"22").tolist()
    [2, 2]
    """
    digits = np.frombuffer(compressed, dtype=np.uint8).astype(np.int64) - 48
    if not len(digits):
        return np.empty(0, np.int64)
    last = np.flatnonzero(digits & 32 == 0)
    first = np.concatenate([[0], last[:-1] + 1])
    length = last - first + 1
    place = np.arange(last[-1] + 1) - np.repeat(first, length)
    numbers = np.add.reduceat((digits[: last[-1] + 1] & 31) << (5 * place), first)
    numbers -= np.where(digits[last] & 16, np.int64(1) << (5 * length), 0)
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers


def pixel(compressed: bytes, height: int, uniform: float) -> tuple[int, int] | None:
    """Row and column of a pixel of the mask, each equally likely for a uniform number; None if the mask is empty.

    >>> pixel(b"22", 2, 0.0), pixel(b"22", 2, 0.99)
    ((0, 1), (1, 1))
    """
    lengths = runs(compressed)
    painted = np.cumsum(lengths[1::2])
    if not len(painted) or painted[-1] <= 0:
        return None
    chosen = int(uniform * painted[-1])
    run = int(np.searchsorted(painted, chosen, side="right"))
    within = chosen - (int(painted[run - 1]) if run else 0)
    at = int(lengths[: 2 * run + 1].sum()) + within
    return at % height, at // height
