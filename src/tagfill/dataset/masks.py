"""COCO's compressed run lengths of a mask.

A mask is read column by column as alternating runs, starting with a run of zeros. pycocotools writes them. Reading is
done here, because pycocotools trusts its input and cannot list the runs: damaged bytes must be refused with a reason,
and most callers need the runs and no dense mask. Once they are read and checked, `np.repeat` paints them;
`pycocotools.mask.decode` would read them again, and warns with NumPy 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.labels import expand_ranges

# A number is written as characters of five bits, lowest first. Bit 5 says that more follow, bit 4 of the last character
# is the sign. From the fourth run on, the difference to the run two before is stored.
_ZERO, _MORE, _SIGN, _DIGIT = 48, 32, 16, 31
_LONGEST = 8  # characters of a number, which is then below 2³⁹: sums of them cannot overflow


def encode(mask: NDArray[np.bool_]) -> bytes:
    """Encode an H×W mask; the bytes are those of `pycocotools.mask.encode`.

    >>> encode(np.array([[False, True], [False, True]]))
    b'22'
    """
    return compress(runs_of(mask))


def decode(rle: bytes, height: int, width: int) -> NDArray[np.bool_]:
    """Decode run lengths into an H×W mask.

    >>> decode(b"22", 2, 2).tolist()
    [[False, True], [False, True]]

    Raises:
        ValueError: if the bytes are not the run lengths of such a mask; the message is the end of a sentence
            about them.
    """
    lengths = runs(rle)
    if not fills(lengths, height, width):
        raise ValueError(f"do not fill {height} × {width} pixels")
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).reshape(width, height).T


def runs_of(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Lengths of the runs of zeros, ones, zeros… down the columns of a mask; the first may be 0."""
    flat = np.concatenate([[False], mask.ravel(order="F")])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(np.concatenate([[0], edges, [mask.size]])).astype(np.int64, copy=False)


def compress(lengths: NDArray[np.int64]) -> bytes:
    """Compress run lengths, each below 2²⁹.

    >>> compress(np.array([2, 2]))
    b'22'
    """
    from pycocotools import mask as coco

    # pycocotools reserves six characters per run and none for the end of the string, so it writes past its memory if
    # every run takes six. One more run, of which a single character is written and cut off again, makes room.
    extra = lengths[-2] if len(lengths) > 2 else 0
    counts = np.append(lengths, extra)
    compressed: bytes = coco.frPyObjects({"size": [1, int(counts.sum())], "counts": counts}, 1, int(counts.sum()))[
        "counts"
    ]
    return compressed[:-1]


def runs(rle: bytes) -> NDArray[np.int64]:
    """Lengths of the alternating runs, starting with a run of zeros, which may be empty.

    >>> runs(b"22").tolist()
    [2, 2]

    Raises:
        ValueError: if the bytes are not run lengths; the message is the end of a sentence about them.
    """
    codes = np.frombuffer(rle, dtype=np.uint8).astype(np.int64) - _ZERO
    if not len(codes):
        return np.empty(0, np.int64)
    if (invalid := np.flatnonzero((codes < 0) | (codes > _MORE + _DIGIT))).size:
        raise ValueError(f"have a character {chr(rle[invalid[0]])!r}")
    if codes[-1] & _MORE:
        raise ValueError("end in the middle of a number")
    ends = np.flatnonzero(codes < _MORE)
    begins = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - begins + 1
    if sizes.max() > _LONGEST:
        raise ValueError("have a number that is too large")
    digit = np.arange(len(codes)) - np.repeat(begins, sizes)
    numbers = np.add.reduceat((codes & _DIGIT) << (5 * digit), begins)
    numbers -= np.where(codes[ends] & _SIGN, np.int64(1) << (5 * sizes), 0)
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    if numbers.min() < 0:
        raise ValueError("have a negative run")
    return numbers


def fills(lengths: NDArray[np.int64], height: int, width: int) -> bool:
    """Whether runs cover exactly the pixels of an H×W mask."""
    return bool(lengths.min(initial=0) >= 0 and lengths.sum() == height * width)


def area(rle: bytes) -> int:
    """The number of ones."""
    return int(runs(rle)[1::2].sum())


def bounds(rle: bytes, height: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of the box around the ones, in pixels; all 0 for an empty mask.

    `pycocotools.mask.toBbox` gives other boxes where a run of ones is empty, as some files have them.

    >>> bounds(b"22", 2)
    (1, 0, 1, 2)
    """
    found = strips(rle, height)
    if not len(found):
        return 0, 0, 0, 0
    left, top, _ = found.min(axis=0).tolist()
    right, _, bottom = found.max(axis=0).tolist()
    return left, top, right - left + 1, bottom - top


def strips(rle: bytes, height: int) -> NDArray[np.int64]:
    """The ones as vertical strips, one pixel wide: n×3 of column, top and bottom, where bottom is exclusive.

    >>> strips(b"22", 2).tolist()
    [[1, 0, 2]]
    """
    lengths = runs(rle)
    ends = np.cumsum(lengths)
    drawn = (np.arange(len(lengths)) % 2 == 1) & (lengths > 0)
    first, last = (ends - lengths)[drawn], ends[drawn] - 1
    columns = last // height - first // height + 1
    column, run = expand_ranges(first // height, columns)
    top = np.maximum(first[run] - column * height, 0)
    bottom = np.minimum(last[run] + 1 - column * height, height)
    return np.stack([column, top, bottom], axis=1)
