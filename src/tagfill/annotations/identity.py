"""Hashes of what a dataset says, whatever its files look like.

`images` is the ordered list of images, `classes` the ordered list of classes, `labels` the set of annotation
rows together with the split of each image; the order of rows does not count. Feature caches depend on the
first, models on the second, and resuming a run on all three.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class RowsHash:
    """A hash of a set of rows that is fed in batches and does not depend on their order.

    Each row becomes two well-mixed 64-bit numbers; the hash is their sums. Adding a row twice is not the
    same as adding it once.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(2, dtype=np.uint64)
        self._rows = 0
        self._strings: dict[str, int] = {}

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add the rows of a batch; columns are taken in the order of their names."""
        state = np.zeros((2, batch.num_rows), dtype=np.uint64)
        state[1] = np.uint64(0x9E3779B97F4A7C15)
        for name in sorted(batch.schema.names):
            column = self._numbers(batch.column(name))
            state[0] = _mix(state[0] ^ column)
            state[1] = _mix(state[1] + column * np.uint64(0xD6E8FEB86659FD93))
        self._sums += state.sum(axis=1, dtype=np.uint64)
        self._rows += batch.num_rows

    def hexdigest(self) -> str:
        """The hash of everything so far."""
        return hashlib.sha256(self._sums.tobytes() + self._rows.to_bytes(8, "little")).hexdigest()

    def _numbers(self, column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            return np.array([self._of(value) for value in column.to_pylist()], dtype=np.uint64)
        if not pa.types.is_dictionary(column.type) and pa.types.is_string(column.type):
            column = column.dictionary_encode()
        if pa.types.is_dictionary(column.type):
            words = np.array([self._of(value) for value in column.dictionary.to_pylist()] + [0], dtype=np.uint64)
            codes: NDArray[np.int64] = column.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
            return words[codes]
        missing = column.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        values = column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy(zero_copy_only=False)
        bits = values.astype(np.float64).view(np.uint64) if values.dtype.kind == "f" else values.astype(np.uint64)
        return np.where(missing, np.uint64(0), _mix(bits + np.uint64(1)))

    def _of(self, value: object) -> int:
        """A number for a string, bytes or list; null is 0."""
        if value is None:
            return 0
        text = value.hex() if isinstance(value, bytes) else json.dumps(value)
        if text not in self._strings:
            number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
            if len(self._strings) > 1_000_000:
                self._strings.clear()
            self._strings[text] = number
        return self._strings[text]


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
