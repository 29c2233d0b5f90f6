"""COCO's compressed run lengths of a mask.

The mask is read column by column as alternating runs, the first one of zeros. From the fourth run on, the
difference to the run two before is stored; each number becomes characters of five bits, lowest first, the
sixth bit saying that more follow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def encode(mask: NDArray[np.bool_]) -> bytes:
    """The run lengths of an H×W mask, as `pycocotools.mask.encode` gives them in `counts`.

    >>> encode(np.array([[False, True], [False, True]]))
    b'22'
    """
    runs = run_lengths(mask)
    numbers = runs[:3] + [run - before for run, before in zip(runs[3:], runs[1:], strict=False)]
    return b"".join(_characters(number) for number in numbers)


def run_lengths(mask: NDArray[np.bool_]) -> list[int]:
    """Lengths of the runs of zeros, ones, zeros… down the columns; the first may be 0."""
    pixels = mask.ravel(order="F")
    changes = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    edges = np.concatenate([[0], changes, [pixels.size]])
    runs: list[int] = np.diff(edges).tolist()
    return [0, *runs] if pixels.size and pixels[0] else runs


def _characters(number: int) -> bytes:
    """A signed number as base-32 digits in printable characters."""
    characters = bytearray()
    while True:
        digit, number = number & 31, number >> 5
        finished = number == (-1 if digit & 16 else 0)
        characters.append(48 + (digit if finished else digit | 32))
        if finished:
            return bytes(characters)
