"""Find text in a fixed list, a column at a time: image names in the image table, labels in the class list.

Text is compared by 64-bit hashes, and equality is checked afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.rng import mix

_CHUNK = 1 << 16
_GROWTH = 1 << 20  # entries
_MERGED = 4  # a run is merged with one that is less than this many times as long
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

    @property
    def distinct(self) -> bool:
        """Whether no text is listed twice; two texts with the same hash, too, make this false."""
        return not self._collide

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


class TextNumbers:
    """Numbers for distinct text in a stream, from 0 in the order in which text appears, at 12 bytes per text.

    Hashes are kept in sorted runs. A run is merged with the one before it when it is not much shorter, so that a text
    is moved a few times, however many there are. Two texts with the same 64-bit hash would get the same number.

    >>> numbers = TextNumbers()
    >>> numbers.add(pa.array(["cat", "dog"])).tolist(), numbers.add(pa.array(["cow", "dog"])).tolist()
    ([0, 1], [2, 1])
    """

    def __init__(self) -> None:
        self._size = 0
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.int32]]] = []

    def __len__(self) -> int:
        return self._size

    def add(self, words: pa.Array) -> NDArray[np.int64]:
        """The number of each text; new texts get the next ones."""
        hashes, first, word = np.unique(hash_text(words), return_index=True, return_inverse=True)
        number = np.full(len(hashes), -1, dtype=np.int64)
        for known, numbers in self._runs:
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            number = np.where(known[at] == hashes, numbers[at], number)
        new = np.flatnonzero(number < 0)
        number[new[np.argsort(first[new])]] = self._size + np.arange(len(new))
        self._size += len(new)
        if len(new):
            self._runs.append((hashes[new], number[new].astype(np.int32)))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < _MERGED * len(self._runs[-1][0]):
            before, last = self._runs.pop(-2), self._runs.pop()
            both, numbers = np.concatenate([before[0], last[0]]), np.concatenate([before[1], last[1]])
            order = np.argsort(both, kind="stable")  # merges two sorted runs
            self._runs.append((both[order], numbers[order]))
        return number[word]


class GrowingArray:
    """An array that is appended to; the kernel moves large blocks without copying them."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype=kind)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, part: NDArray[Any]) -> None:
        """Append a part."""
        end = self._size + len(part)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) + min(len(self._array), _GROWTH)), refcheck=False)
        self._array[self._size : end] = part
        self._size = end

    def view(self) -> NDArray[Any]:
        """What was appended so far; do not keep it, the next part may move it."""
        return self._array[: self._size]

    def whole(self) -> NDArray[Any]:
        """The array, to which nothing is appended afterwards."""
        self._array.resize(self._size, refcheck=False)
        return self._array


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
