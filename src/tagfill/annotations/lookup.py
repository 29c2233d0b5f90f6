"""Where text stands in a list: image names in the image table, labels in the class list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import hashing


class Lookup:
    """Positions of text in a fixed list, a column at a time.

    The list is hashed and sorted once, 12 bytes an entry, so that a batch costs no more among a million names than
    among a hundred. Of text that is listed twice, the first position counts.

    >>> Lookup(pa.array(["cat", "dog"])).codes(pa.array(["dog", None, "cow", "cat"])).tolist()
    [1, -1, -1, 0]
    """

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        self._values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        hashes = hashing.of_text(self._values)
        self._order = np.argsort(hashes).astype(np.int32)
        self._hashes = hashes[self._order]
        self._collide = bool((self._hashes[1:] == self._hashes[:-1]).any())

    def repeated(self) -> tuple[int, int] | None:
        """The first two positions of the first text that is listed again, if one is."""
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
        if self._collide:  # text that is listed twice, or two of the same hash: found the slow way
            found = pc.index_in(words, value_set=self._values, skip_nulls=True)
            first: NDArray[np.int32] = found.fill_null(-1).to_numpy(zero_copy_only=False)
            return first
        hashes = hashing.of_text(words)
        order = np.argsort(hashes)  # a search in ascending order stays within the processor's cache
        at = np.empty(len(words), dtype=np.int64)
        at[order] = np.searchsorted(self._hashes, hashes[order])
        places = self._order[np.minimum(at, len(self._hashes) - 1)]
        same = pc.fill_null(pc.equal(self._values.take(pa.array(places)), words), False)
        places[~same.to_numpy(zero_copy_only=False)] = -1
        return places
