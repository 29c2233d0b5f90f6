"""Find text in a fixed list, a column at a time: image names in the image table, labels in the class list.

Text is compared by 64-bit hashes, and equality is checked afterwards.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.rng import mix

_CHUNK = 1 << 16
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


class Lookup:
    """Positions of text in a fixed list, a column at a time.

    The list is hashed and sorted once, at 12 bytes per entry, so that looking up a batch takes about as long among a
    million names as among a hundred. If text is listed twice, its first position is returned.

    >>> Lookup(pa.array(["cat", "dog"])).codes(pa.array(["dog", None, "cow", "cat"])).tolist()
    [1, -1, -1, 0]
    """

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        self._values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        hashes = hash_text(self._values)
        self._order = np.argsort(hashes).astype(np.int32)
        self._hashes = hashes[self._order]
        self._collide = bool((self._hashes[1:] == self._hashes[:-1]).any())

    def repeated(self) -> tuple[int, int] | None:
        """The first two positions of the first text that is listed twice, if any."""
        seen: dict[str | None, int] = {}
        for place, text in enumerate(self._values.to_pylist() if self._collide else []):
            if text in seen:
                return seen[text], place
            seen[text] = place
        return None

    def codes(self, column: pa.Array) -> NDArray[np.int32]:
        """The position of each entry, -1 where it is null or not in the list."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        places = np.append(self._places(column.dictionary), np.int32(-1))
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(len(places) - 1)
        codes: NDArray[np.int32] = places[indices.to_numpy(zero_copy_only=False)]
        return codes

    def _places(self, words: pa.Array) -> NDArray[np.int32]:
        """The position of each distinct word, -1 where there is none."""
        if not len(self._values):
            return np.full(len(words), -1, dtype=np.int32)
        if self._collide:  # repeated text, or two texts with the same hash: use the slow way
            found = pc.index_in(words, value_set=self._values, skip_nulls=True)
            first: NDArray[np.int32] = found.fill_null(-1).to_numpy(zero_copy_only=False)
            return first
        hashes = hash_text(words)
        order = np.argsort(hashes)  # a search in ascending order stays within the processor's cache
        at = np.empty(len(words), dtype=np.int64)
        at[order] = np.searchsorted(self._hashes, hashes[order])
        places = self._order[np.minimum(at, len(self._hashes) - 1)]
        same = pc.fill_null(pc.equal(self._values.take(pa.array(places)), words), False)
        places[~same.to_numpy(zero_copy_only=False)] = -1
        return places


def hash_text(words: pa.Array) -> NDArray[np.uint64]:
    """A 64-bit hash of each string or bytes of an array; null counts as empty.

    Not cryptographic: two different texts share a hash with a chance of 2⁻⁶⁴.

    >>> cat, dog, again = hash_text(pa.array(["cat", "dog", "cat"]))
    >>> bool(cat == again), bool(cat == dog)
    (True, False)
    """
    numbers = np.empty(len(words), dtype=np.uint64)
    for begin in range(0, len(words), _CHUNK):
        numbers[begin : begin + _CHUNK] = _hash_chunk(words.slice(begin, _CHUNK))
    return numbers


def _hash_chunk(words: pa.Array) -> NDArray[np.uint64]:
    """Hash eight bytes of every word at a time."""
    _, offsets, content = words.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[words.offset : words.offset + len(words) + 1].astype(np.int64)
    begins, lengths = edges[:-1] - edges[0], np.diff(edges)
    padded = np.zeros(int(edges[-1] - edges[0]) + 8, dtype=np.uint8)
    if content is not None:
        padded[:-8] = np.frombuffer(content, dtype=np.uint8)[edges[0] : edges[-1]]
    eight = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))  # 8 bytes from each byte on
    numbers = mix(lengths.astype(np.uint64))
    for done in range(0, int(lengths.max(initial=0)), 8):
        longer = np.flatnonzero(lengths > done)
        bits = eight[begins[longer] + done] & _FIRST_BYTES[np.minimum(lengths[longer] - done, 8)]
        numbers[longer] = mix(numbers[longer] ^ bits)
    return numbers
