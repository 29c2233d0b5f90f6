"""How many pixels COCO's compressed run lengths cover.

Each number is written in characters of five bits, lowest first, the sixth bit saying that more follow and the fifth of
the last one being the sign; from the fourth run on, the difference to the run two before is stored.
"""

from __future__ import annotations

import numpy as np

_LONGEST = 12  # characters of a number of 60 bits


def pixels(rle: bytes) -> int | None:
    """The sum of all runs, height × width of the mask; None where the bytes are no run lengths.

    >>> pixels(b"22"), pixels(b"no")
    (4, None)
    """
    codes = np.frombuffer(rle, dtype=np.uint8).astype(np.int64) - 48
    if not len(codes) or codes.min() < 0 or codes.max() > 63 or codes[-1] & 32:
        return None
    ends = np.flatnonzero((codes & 32) == 0)
    begins = np.concatenate([[0], ends[:-1] + 1])
    if (ends - begins).max() >= _LONGEST:
        return None
    place = np.arange(len(codes)) - np.repeat(begins, ends - begins + 1)
    numbers = np.add.reduceat((codes & 31) << (5 * place), begins)
    negative = (codes[ends] & 16) > 0
    numbers[negative] -= np.int64(1) << (5 * (ends - begins + 1)[negative])
    runs = numbers.copy()
    runs[1::2] = np.cumsum(numbers[1::2])
    runs[2::2] = np.cumsum(numbers[2::2])
    return None if (runs < 0).any() else int(runs.sum())
