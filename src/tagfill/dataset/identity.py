"""Hashes of what a dataset says, independent of its files.

`images` is the ordered list of images, `classes` the ordered list of classes, `labels` the set of annotation rows with
the split of each image, the hierarchy and the resolution of conflicts; the order of rows does not matter. Feature
caches depend on the first, models on the second, and resuming a run on all three.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.dataset.lookup import hash_text
from tagfill.io import sha256_of_strings
from tagfill.rng import GAMMA, mix

if TYPE_CHECKING:
    from tagfill.dataset.dataset import Dataset


_TEXTS = 1 << 14
_NULL = np.uint64(0xA0761D6478BD642F)


def identities(dataset: Dataset) -> dict[str, str]:
    """The three hashes of a dataset, by name."""
    rows = RowsHash()
    for batch in dataset.scan():
        rows.update(batch)

    def labels() -> Iterator[str]:
        yield rows.hexdigest()
        if dataset.conflict != "error":
            yield dataset.conflict
        yield from (f"{child}\0{parent}" for child, parent in sorted(dataset.hierarchy))
        yield from _texts(dataset.images["split"])

    return {
        "images": sha256_of_strings(_texts(dataset.images["image"])),
        "classes": sha256_of_strings(dataset.classes),
        "labels": sha256_of_strings(labels()),
    }


class RowsHash:
    """A hash of a multiset of rows: added in batches, independent of their order.

    Each row becomes two well-mixed 64-bit numbers; the hash is made of their sums. Adding a row twice is not the same
    as adding it once. All NaNs are equal, and so are -0 and 0.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(2, dtype=np.uint64)
        self._rows = 0

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add the rows of a batch; the order of its columns does not matter."""
        state = np.zeros((2, batch.num_rows), dtype=np.uint64)
        state[1] = GAMMA
        for name in sorted(batch.schema.names):
            column = _numbers(batch.column(name))
            state[0] = mix(state[0] ^ column)
            state[1] = mix(state[1] + column * np.uint64(0xD6E8FEB86659FD93))
        self._sums += state.sum(axis=1, dtype=np.uint64)
        self._rows += batch.num_rows

    def hexdigest(self) -> str:
        """The hash of all rows added so far."""
        return hashlib.sha256(self._sums.tobytes() + self._rows.to_bytes(8, "little")).hexdigest()


def _numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """A number for each value of a column, the same for each encoding of the column."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    if pa.types.is_list(column.type):
        texts = [None if value is None else json.dumps(value) for value in column.to_pylist()]
        column = pa.array(texts, pa.string())
    if pa.types.is_dictionary(column.type):
        words = np.append(_numbers(column.dictionary), _NULL)
        codes: NDArray[np.int64] = column.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
        return words[codes]
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return np.where(missing, _NULL, hash_text(column))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy(zero_copy_only=False)
    return np.where(missing, _NULL, mix(_bits(values)))


def _bits(values: NDArray[np.generic]) -> NDArray[np.uint64]:
    """The values as 64 bits each; equal values have equal bits."""
    if values.dtype.kind != "f":
        return values.astype(np.int64).view(np.uint64)
    numbers = values.astype(np.float64) + 0.0  # turns -0 into 0
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


def _texts(column: pa.ChunkedArray) -> Iterator[str]:
    """The strings of a column; null becomes a string that is no valid name."""
    for begin in range(0, len(column), _TEXTS):
        for text in column.slice(begin, _TEXTS).to_pylist():
            yield "\0" if text is None else text
