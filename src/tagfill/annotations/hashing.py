"""64-bit numbers for text, a column at a time.

They are no secret and no proof: they serve to find text, where equality is checked afterwards, and to tell rows apart,
where two that differ are mistaken for each other once in 2⁶⁴.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.draws import mix

_CHUNK = 1 << 16
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


def of_text(words: pa.Array) -> NDArray[np.uint64]:
    """A number for each string or bytes of an array; null counts as empty.

    >>> cat, dog, again = of_text(pa.array(["cat", "dog", "cat"]))
    >>> bool(cat == again), bool(cat == dog)
    (True, False)
    """
    numbers = np.empty(len(words), dtype=np.uint64)
    for begin in range(0, len(words), _CHUNK):
        numbers[begin : begin + _CHUNK] = _of_chunk(words.slice(begin, _CHUNK))
    return numbers


def _of_chunk(words: pa.Array) -> NDArray[np.uint64]:
    """Eight bytes of every word at a time, as one number."""
    _, offsets, content = words.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[words.offset : words.offset + len(words) + 1].astype(np.int64)
    begins, lengths = edges[:-1] - edges[0], np.diff(edges)
    padded = np.zeros(int(edges[-1] - edges[0]) + 8, dtype=np.uint8)
    if content is not None:
        padded[:-8] = np.frombuffer(content, dtype=np.uint8)[edges[0] : edges[-1]]
    eight = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))  # those from each byte on
    numbers = mix(lengths.astype(np.uint64))
    for done in range(0, int(lengths.max(initial=0)), 8):
        longer = np.flatnonzero(lengths > done)
        bits = eight[begins[longer] + done] & _FIRST_BYTES[np.minimum(lengths[longer] - done, 8)]
        numbers[longer] = mix(numbers[longer] ^ bits)
    return numbers
