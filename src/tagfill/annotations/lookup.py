"""Where text stands in a list: image names in the image table, labels in the class list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_LARGE = 1 << 16
_PATIENCE = 2


class Lookup:
    """Positions of text in a fixed list, a column at a time.

    Rows usually come in the order of the image table. The names of a batch are then found in a short stretch that
    begins where the last batch ended, and a million names need not be hashed for every batch.

    >>> Lookup(pa.array(["cat", "dog"])).codes(pa.array(["dog", None, "cow", "cat"])).tolist()
    [1, -1, -1, 0]
    """

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        self._values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        self._next = 0
        self._misses = 0 if len(self._values) > _LARGE else _PATIENCE
        self._last: tuple[pa.Array, NDArray[np.int32]] | None = None

    def codes(self, column: pa.Array) -> NDArray[np.int32]:
        """The position of each entry, -1 where it is null or not in the list."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        places = self._places(column.dictionary)
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(len(places) - 1)
        codes: NDArray[np.int32] = places[indices.to_numpy(zero_copy_only=False)]
        return codes

    def _places(self, words: pa.Array) -> NDArray[np.int32]:
        """The position of each word, and a last -1 for null."""
        if self._last is None or not self._last[0].equals(words):
            self._last = words, np.append(_filled(self._find(words)), np.int32(-1))
        return self._last[1]

    def _find(self, words: pa.Array) -> pa.Array:
        if self._misses >= _PATIENCE or not len(words):
            return pc.index_in(words, value_set=self._values, skip_nulls=True)
        begin, stretch = self._next, self._values.slice(self._next, 4 * len(words))
        found = pc.add(pc.index_in(words, value_set=stretch, skip_nulls=True), begin)
        if found.null_count:
            self._misses += 1
            found = pc.index_in(words, value_set=self._values, skip_nulls=True)
        else:
            self._misses = 0
        self._next = pc.max(found).as_py() or 0
        return found


def _filled(found: pa.Array) -> NDArray[np.int32]:
    filled: NDArray[np.int32] = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return filled
