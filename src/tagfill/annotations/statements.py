"""What the rows of a dataset say about chosen images, read as a stream.

Only numbers are kept of each row: a key (image·L + class), what it says, and its time. Who said so and in which row
is looked up again for the few pairs that need it: to name contradictory rows, or to count votes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import resolve
from tagfill.annotations.keys import contains
from tagfill.annotations.lookup import Lookup
from tagfill.annotations.rows import KINDS
from tagfill.annotations.states import UNKNOWN
from tagfill.errors import DatasetError

if TYPE_CHECKING:
    from tagfill.annotations.dataset import Dataset

_GROWTH = 1 << 20
_COLUMNS = ("image", "label", "present", "kind", "time")


@dataclass(frozen=True)
class Said:
    """Statements of some rows: row number, key, statement, time, and source where it was asked for."""

    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    says: NDArray[np.int8]
    times: NDArray[np.int64] | None
    sources: pa.Array | None = None


def stream(
    dataset: Dataset, position: NDArray[np.int64], *, sources: bool = False, strict: bool = True
) -> Iterator[Said]:
    """Batches of statements about the images that have a position.

    Args:
        dataset: whose rows are read.
        position: of each row of the image table in the label matrix, -1 for images that are left out.
        sources: whether to give the source of each row.
        strict: whether a row that names an unknown image, label or kind is an error; else it is left out.
    """
    images, classes, kinds = Lookup(dataset.images["image"]), Lookup(pa.array(dataset.classes, pa.string())), _kinds()
    width, offset = len(dataset.classes), 0
    for batch in dataset.scan([*_COLUMNS, "source"] if sources else list(_COLUMNS)):
        codes = {"label": classes.codes(batch["label"]), "image": images.codes(batch["image"])}
        codes["kind"] = kinds.codes(batch["kind"])
        found = np.ones(batch.num_rows, dtype=bool)
        for column, code in codes.items():
            found &= code >= 0
            if strict and not found.all():
                raise stray(dataset, batch, int(np.flatnonzero(~found)[0]), offset, column)
        present = pc.fill_null(batch["present"].cast(pa.int8()), UNKNOWN).to_numpy(zero_copy_only=False)
        says = resolve.statements(present, codes["kind"] != KINDS.index("image"))
        at = position[codes["image"]]
        use = np.flatnonzero(found & (at >= 0) & (says != resolve.REGION_ONLY))
        yield Said(
            rows=use + offset,
            keys=at[use] * width + codes["label"][use],
            says=says[use],
            times=_times(batch["time"], use),
            sources=batch["source"].take(pa.array(use)) if sources else None,
        )
        offset += batch.num_rows


def collect(
    dataset: Dataset, position: NDArray[np.int64], *, strict: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64] | None]:
    """Keys, statements and times (None where no row has one) of all rows about the images that have a position."""
    keys, says, times = _Growing(np.int64), _Growing(np.int8), _Growing(np.int64)
    timed = False
    for said in stream(dataset, position, strict=strict):
        keys.add(said.keys)
        says.add(said.says)
        if said.times is not None and not timed:
            timed = True
            times.add(_no_times(len(keys) - len(said.keys)))
        if timed:
            times.add(_no_times(len(said.keys)) if said.times is None else said.times)
    pa.default_memory_pool().release_unused()
    return keys.whole(), says.whole(), times.whole() if timed else None


@dataclass(frozen=True)
class Evidence:
    """The newest rows about some pairs, in the order of the file.

    Attributes:
        rows: row numbers.
        keys: the pair of each.
        says: what each says about its image.
        sources: a number for each distinct source, `resolve.NO_SOURCE` where there is none.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    says: NDArray[np.int8]
    sources: NDArray[np.int64]

    def first(self, key: int, value: int | None = None, *, other_than: int | None = None) -> int:
        """The first row about a pair, of those that say `value` or something other than `other_than`."""
        chosen = self.keys == key
        if value is not None:
            chosen &= self.says == value
        if other_than is not None:
            chosen &= self.says != other_than
        return int(self.rows[np.flatnonzero(chosen)[0]])

    def clash(self, key: int) -> tuple[int, int]:
        """The first two rows about a pair that contradict each other."""
        first = self.first(key)
        return first, self.first(key, other_than=int(self.says[self.rows == first][0]))


def evidence(
    dataset: Dataset, position: NDArray[np.int64], keys: NDArray[np.int64], *, strict: bool = True
) -> Evidence:
    """Read the rows again, and keep the newest about each of these keys (ascending)."""
    rows, found, says, times, sources = [], [], [], [], []
    for said in stream(dataset, position, sources=True, strict=strict):
        use = np.flatnonzero(contains(keys, said.keys))
        rows.append(said.rows[use])
        found.append(said.keys[use])
        says.append(said.says[use])
        times.append(_no_times(len(use)) if said.times is None else said.times[use])
        assert said.sources is not None
        sources.append(_plain(said.sources.take(pa.array(use))))
    key, time = _joined(found, np.int64), _joined(times, np.int64)
    newest = np.full(len(keys), resolve.NO_TIME)
    np.maximum.at(newest, np.searchsorted(keys, key), time)
    live = time == newest[np.searchsorted(keys, key)]
    source = pa.chunked_array(sources, pa.string()).combine_chunks().dictionary_encode()
    numbers = source.indices.fill_null(resolve.NO_SOURCE).to_numpy(zero_copy_only=False).astype(np.int64)
    return Evidence(_joined(rows, np.int64)[live], key[live], _joined(says, np.int8)[live], numbers[live])


def stray(dataset: Dataset, batch: pa.RecordBatch, row: int, offset: int, column: str) -> DatasetError:
    """The error for a row whose image, label or kind does not exist."""
    value = batch[column][row].as_py()
    named = f"it has no {column}, which must be" if value is None else f"{column} '{value}' is not"
    return DatasetError(
        f"{dataset.where()}, row {offset + row}: {named} {HOMES[column]}; correct it, add it there or drop the row."
    )


HOMES = {
    "label": "in the class list of the dataset",
    "image": "in the image table",
    "kind": f"one of {', '.join(KINDS)}",
}


def _kinds() -> Lookup:
    return Lookup(pa.array(KINDS, pa.string()))


def _times(column: pa.Array, use: NDArray[np.int64]) -> NDArray[np.int64] | None:
    if column.null_count == len(column):
        return None
    times: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), resolve.NO_TIME).to_numpy(zero_copy_only=False)
    return times[use]


def _no_times(size: int) -> NDArray[np.int64]:
    return np.full(size, resolve.NO_TIME)


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _joined(parts: list[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts])


class _Growing:
    """An array that is added to; large blocks are moved by the kernel and not copied."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype=kind)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, part: NDArray[Any]) -> None:
        end = self._size + len(part)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) + min(len(self._array), _GROWTH)), refcheck=False)
        self._array[self._size : end] = part
        self._size = end

    def whole(self) -> NDArray[Any]:
        self._array.resize(self._size, refcheck=False)
        return self._array
