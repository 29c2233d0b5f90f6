"""COCO's compressed run lengths of a mask.

A mask is read column by column as alternating runs, the first one of zeros. From the fourth run on, the difference to
the run two before is stored. Each number becomes characters of five bits, lowest first, the sixth bit saying that more
follow and the fifth of the last one being the sign.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.labels import stretches

_ZERO, _MORE, _SIGN, _DIGIT = 48, 32, 16, 31
_LONGEST = 8  # characters of a number, which is then below 2³⁹: sums of them cannot overflow


def encode(mask: NDArray[np.bool_]) -> bytes:
    """The run lengths of an H×W mask, as `pycocotools.mask.encode` gives them in `counts`.

    >>> encode(np.array([[False, True], [False, True]]))
    b'22'
    """
    return compress(runs_of(mask))


def decode(rle: bytes, height: int, width: int) -> NDArray[np.bool_]:
    """The H×W mask.

    >>> decode(b"22", 2, 2).tolist()
    [[False, True], [False, True]]

    Raises:
        ValueError: the bytes are no run lengths of such a mask, in the form of half a sentence about them.
    """
    lengths = runs(rle)
    if not fill(lengths, height, width):
        raise ValueError(f"do not fill {height} × {width} pixels")
    return np.repeat(_painted(lengths), lengths).reshape(width, height).T


def runs_of(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Lengths of the runs of zeros, ones, zeros… down the columns of a mask; the first may be 0."""
    flat = np.concatenate([[False], mask.ravel(order="F")])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(np.concatenate([[0], edges, [mask.size]])).astype(np.int64, copy=False)


def compress(lengths: NDArray[np.int64]) -> bytes:
    """Run lengths as characters.

    >>> compress(np.array([2, 2]))
    b'22'
    """
    rest = lengths.astype(np.int64)
    rest[3:] -= lengths[1:-2]
    going, columns, used = np.ones(len(rest), dtype=bool), [], []
    while going.any():
        digit, rest = rest & _DIGIT, rest >> 5
        last = rest == np.where(digit & _SIGN, -1, 0)
        columns.append(_ZERO + digit + np.where(last, 0, _MORE))
        used.append(going)
        going = going & ~last
    if not columns:
        return b""
    characters: NDArray[np.int64] = np.stack(columns, axis=1)[np.stack(used, axis=1)]
    return characters.astype(np.uint8).tobytes()


def runs(rle: bytes) -> NDArray[np.int64]:
    """Lengths of the alternating runs, the first one of zeros.

    >>> runs(b"22").tolist()
    [2, 2]

    Raises:
        ValueError: the bytes are no run lengths, in the form of half a sentence about them.
    """
    codes = np.frombuffer(rle, dtype=np.uint8).astype(np.int64) - _ZERO
    if not len(codes):
        return np.empty(0, np.int64)
    if (strange := np.flatnonzero((codes < 0) | (codes > _MORE + _DIGIT))).size:
        raise ValueError(f"have a character {chr(rle[strange[0]])!r}")
    if codes[-1] & _MORE:
        raise ValueError("end in the middle of a number")
    ends = np.flatnonzero(codes < _MORE)
    begins = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - begins + 1
    if sizes.max() > _LONGEST:
        raise ValueError("have a number that is too large")
    place = np.arange(len(codes)) - np.repeat(begins, sizes)
    numbers = np.add.reduceat((codes & _DIGIT) << (5 * place), begins)
    numbers -= np.where(codes[ends] & _SIGN, np.int64(1) << (5 * sizes), 0)
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    if numbers.min() < 0:
        raise ValueError("have a negative run")
    return numbers


def fill(lengths: NDArray[np.int64], height: int, width: int) -> bool:
    """Whether runs are those of a mask of this size."""
    return bool(lengths.min(initial=0) >= 0 and lengths.sum() == height * width)


def area(rle: bytes) -> int:
    """The number of pixels of the mask that are ones."""
    return int(runs(rle)[1::2].sum())


def bounds(rle: bytes, height: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of the box around the ones, in pixels; all 0 for an empty mask.

    >>> bounds(b"22", 2)
    (1, 0, 1, 2)
    """
    lengths = runs(rle)
    ends = np.cumsum(lengths)
    drawn = _painted(lengths) & (lengths > 0)
    if not drawn.any():
        return 0, 0, 0, 0
    first, last = (ends - lengths)[drawn], ends[drawn] - 1
    left, right = int(first[0]) // height, int(last[-1]) // height
    if (first // height < last // height).any():  # from the bottom of one column to the top of the next
        top, bottom = 0, height - 1
    else:
        top, bottom = int((first % height).min()), int((last % height).max())
    return left, top, right - left + 1, bottom - top + 1


def strips(rle: bytes, height: int) -> NDArray[np.int64]:
    """The mask as upright strips, one column wide: n×3 of column, top and bottom, the bottom not included.

    >>> strips(b"22", 2).tolist()
    [[1, 0, 2]]
    """
    lengths = runs(rle)
    ends = np.cumsum(lengths)
    drawn = _painted(lengths) & (lengths > 0)
    first, last = (ends - lengths)[drawn], ends[drawn] - 1
    columns = last // height - first // height + 1
    column, run = stretches(first // height, columns)
    top = np.maximum(first[run] - column * height, 0)
    bottom = np.minimum(last[run] + 1 - column * height, height)
    return np.stack([column, top, bottom], axis=1)


def _painted(lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which runs are of ones."""
    painted: NDArray[np.bool_] = np.arange(len(lengths)) % 2 == 1
    return painted
