"""What the rows of a dataset say about chosen images, read as a stream.

Only numbers are kept of each row: a key (image·L + class), what it says, and its time. Who said so and in which row
is looked up again for the few pairs that need it: to name contradictory rows, or to count votes.


From statements to decided labels: the newest statement about an (image, label) pair decides.

- A location with present=true says that the image shows the label; with present=false it speaks of that
  region only and says nothing about the image.
- A row without a time is older than any row with one.
- Rows of the same age that contradict each other are a *clash*: an error, or a vote.
- "Cannot tell" (present is null) supersedes older rows like any other answer, contradicts the others like any
  other answer, and is coded unknown.
- In a vote each source has one vote for each thing it says, however many rows say it, and rows without a source
  have one each. What more than half of the votes say decides; without such a majority, as in a tie, the label is
  unknown.

The labels of a dataset: statements of rows, decided, and closed over the hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset.hierarchy import Hierarchy
from tagfill.dataset.tables import KINDS, Lookup
from tagfill.errors import DatasetError, unknown_name
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, in_sorted

if TYPE_CHECKING:
    from tagfill.dataset.dataset import Dataset


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
        says = statements(present, codes["kind"] != KINDS.index("image"))
        at = position[codes["image"]]
        use = np.flatnonzero(found & (at >= 0) & (says != REGION_ONLY))
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
        use = np.flatnonzero(in_sorted(keys, said.keys))
        rows.append(said.rows[use])
        found.append(said.keys[use])
        says.append(said.says[use])
        times.append(_no_times(len(use)) if said.times is None else said.times[use])
        assert said.sources is not None
        sources.append(_plain(said.sources.take(pa.array(use))))
    key, time = _joined(found, np.int64), _joined(times, np.int64)
    newest = np.full(len(keys), NO_TIME)
    np.maximum.at(newest, np.searchsorted(keys, key), time)
    live = time == newest[np.searchsorted(keys, key)]
    source = pa.chunked_array(sources, pa.string()).combine_chunks().dictionary_encode()
    numbers = source.indices.fill_null(NO_SOURCE).to_numpy(zero_copy_only=False).astype(np.int64)
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
    times: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), NO_TIME).to_numpy(zero_copy_only=False)
    return times[use]


def _no_times(size: int) -> NDArray[np.int64]:
    return np.full(size, NO_TIME)


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


NO_TIME = np.iinfo(np.int64).min
REGION_ONLY = np.int8(-2)
NO_SOURCE = -1


@dataclass
class Decided:
    """Labels of distinct (image, label) pairs.

    Attributes:
        keys: image·L + class of each pair, ascending.
        values: 1 present, 0 absent, -1 undecided.
        clashes: keys, ascending, about which the newest rows contradict each other; their value is -1.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.int8]
    clashes: NDArray[np.int64]


def statements(present: NDArray[np.int8], located: NDArray[np.bool_]) -> NDArray[np.int8]:
    """What each row says about its image: 1, 0, -1 (cannot tell), or `REGION_ONLY`."""
    return np.where(located & (present == NEGATIVE), REGION_ONLY, present)


def decide(keys: NDArray[np.int64], says: NDArray[np.int8], times: NDArray[np.int64] | None = None) -> Decided:
    """The deciding statement about each key.

    Args:
        keys: one number per (image, label) pair, per row.
        says: what the row says, without `REGION_ONLY` rows.
        times: microseconds, `NO_TIME` where it is missing; None where all are.

    `keys` is worked on in place, and of no use afterwards.

    >>> decide(np.array([5, 3, 5]), np.array([0, 1, 1], np.int8), np.array([10, 10, 20])).values.tolist()
    [1, 1]
    """
    if _rising(keys):
        return Decided(keys, says, np.empty(0, np.int64))
    if times is not None:
        keys, says = _without_superseded(keys, says, times)
    return _of_one_age(keys, says)


def vote(keys: NDArray[np.int64], says: NDArray[np.int8], sources: NDArray[np.int64]) -> Decided:
    """The statement about each key that more than half of its votes agree on, or unknown.

    Args:
        keys: of the newest rows about each pair.
        says: 1, 0 or -1.
        sources: a number for each source, `NO_SOURCE` where the row has none.
    """
    sources = np.where(sources == NO_SOURCE, -1 - np.arange(len(sources)), sources)
    order = np.lexsort((says, sources, keys))
    keys, says, sources = keys[order], says[order], sources[order]
    fresh = np.ones(len(keys), dtype=bool)
    fresh[1:] = (keys[1:] != keys[:-1]) | (sources[1:] != sources[:-1]) | (says[1:] != says[:-1])
    keys, says = keys[fresh], says[fresh]
    pairs, pair, votes = np.unique(keys, return_inverse=True, return_counts=True)
    values = np.full(len(pairs), UNKNOWN, dtype=np.int8)
    for value in (NEGATIVE, POSITIVE):
        values[2 * np.bincount(pair[says == value], minlength=len(pairs)) > votes] = value
    return Decided(pairs, values, np.empty(0, np.int64))


def _without_superseded(
    keys: NDArray[np.int64], says: NDArray[np.int8], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The newest rows about each key; ages matter for the few keys with several rows only."""
    ascending = np.sort(keys)
    repeated = np.unique(ascending[1:][ascending[1:] == ascending[:-1]])
    del ascending
    if not len(repeated):
        return keys, says
    rows = np.flatnonzero(in_sorted(repeated, keys))
    pair = np.searchsorted(repeated, keys[rows])
    newest = np.full(len(repeated), NO_TIME)
    np.maximum.at(newest, pair, times[rows])
    superseded = rows[times[rows] < newest[pair]]
    return np.delete(keys, superseded), np.delete(says, superseded)


def _of_one_age(keys: NDArray[np.int64], says: NDArray[np.int8]) -> Decided:
    """Rows of each key are of the same age; key and statement are sorted as one number, in place."""
    keys *= 4
    keys += says + 1
    if not _ascending(keys):
        keys.sort()
    first = _first_of_each(keys >> 2)
    least, most = keys[first], keys[np.append(first[1:], len(keys)) - 1]
    values = (least & 3).astype(np.int8) - np.int8(1)
    clash = least != most
    values[clash] = UNKNOWN
    least >>= 2
    return Decided(least, values, least[clash])


def _first_of_each(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions where a new key begins, in ascending keys."""
    begins = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def _ascending(keys: NDArray[np.int64]) -> bool:
    return bool((keys[1:] >= keys[:-1]).all())


def _rising(keys: NDArray[np.int64]) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


CONFLICTS = ("error", "majority")


@dataclass(frozen=True)
class Selection:
    """The images whose labels are decided: rows of the image table, and the position of each row among them."""

    rows: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: Dataset, split: str | None) -> Selection:
        """The images of a split, or all."""
        rows = np.arange(len(dataset)) if split is None else dataset.split(split)
        position = np.full(len(dataset) + 1, -1, dtype=np.int64)  # the last one stands for images not in the table
        position[rows] = np.arange(len(rows))
        return cls(rows, position)


def labels(dataset: Dataset, split: str | None, conflict: str) -> LabelMatrix:
    """Decide what is known about the images of a split; see `resolve` and `hierarchy` for the rules."""
    if conflict not in CONFLICTS:
        raise unknown_name("way to settle a conflict", conflict, CONFLICTS)
    _refuse_repeated_images(dataset)
    hierarchy = Hierarchy(dataset.classes, dataset.hierarchy)
    selection = Selection.of(dataset, split)
    decided = decide(*collect(dataset, selection.position))
    if len(decided.clashes) and conflict == "majority":
        settle(decided, evidence(dataset, selection.position, decided.clashes))
    elif len(decided.clashes):
        found = evidence(dataset, selection.position, decided.clashes[:1])
        raise DatasetError(f"{dataset.where()}: {clash(dataset, selection, found, int(decided.clashes[0]))}.")
    keys, values, contradictions = hierarchy.close(decided.keys, decided.values)
    if len(contradictions):
        child, ancestor = (int(key) for key in contradictions[0])
        found = evidence(dataset, selection.position, np.unique(contradictions[:1]))
        raise DatasetError(f"{dataset.where()}: {contradiction(dataset, selection, found, child, ancestor)}.")
    return LabelMatrix.from_keys(keys, values, (len(selection.rows), len(dataset.classes)))


def settle(decided: Decided, found: Evidence) -> None:
    """Put the outcome of the vote in the place of each clash."""
    voted = vote(found.keys, found.says, found.sources)
    decided.values[np.searchsorted(decided.keys, voted.keys)] = voted.values


def clash(dataset: Dataset, selection: Selection, found: Evidence, key: int) -> str:
    """In words: two rows of the same age contradict each other."""
    (image, label), (first, second) = pair(dataset, selection, key), found.clash(key)
    return (
        f"rows {first} and {second} contradict each other about label '{label}' of image '{image}' and neither is "
        "newer; give them times, drop one, or let the majority decide"
    )


def contradiction(dataset: Dataset, selection: Selection, found: Evidence, child: int, ancestor: int) -> str:
    """In words: a class is present and an ancestor of it absent."""
    (image, label), (_, above) = pair(dataset, selection, child), pair(dataset, selection, ancestor)
    yes, no = found.first(child, POSITIVE), found.first(ancestor, NEGATIVE)
    return (
        f"row {yes} says that image '{image}' shows '{label}', and row {no} that it does not show '{above}', "
        f"of which '{label}' is a kind; correct one of them, or the hierarchy"
    )


def pair(dataset: Dataset, selection: Selection, key: int) -> tuple[str, str]:
    """Image and label of a key."""
    at, label = divmod(key, len(dataset.classes))
    return str(dataset.images["image"][int(selection.rows[at])].as_py()), dataset.classes[label]


def _refuse_repeated_images(dataset: Dataset) -> None:
    names = dataset.images["image"]
    if (rows := Lookup(names).repeated()) is not None:
        raise DatasetError(
            f"{dataset.where('images')}: image '{names[rows[0]]}' is listed twice, in rows {rows[0]} and {rows[1]}; "
            "drop one."
        )
