"""From annotation rows to labels: the newest row about an (image, label) pair decides.

- A location with present=true says that the image shows the label; with present=false it is about that region only
  and says nothing about the image.
- A row without a time is older than any row with one.
- Rows of the same age that contradict each other are a *conflict*: an error, or a vote.
- "Cannot tell" (present is null) is an answer like the others: it supersedes older rows, conflicts with other answers
  of the same age, and is coded unknown.
- In a vote, each source has one vote for each answer it gives, however many rows repeat it; each row without a source
  has one vote. An answer with more than half of the votes decides; without one, as in a tie, the label is unknown.

Rows are streamed, and only numbers are kept of them: a key (image·L + class), the answer and the time. The sources and
row numbers of the few pairs that need them, for an error message or a vote, are read in a second pass.
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
from tagfill.dataset.lookup import GrowingArray, Lookup
from tagfill.dataset.tables import KINDS
from tagfill.errors import DatasetError, unknown_name
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, in_sorted

if TYPE_CHECKING:
    from tagfill.dataset.dataset import Dataset

CONFLICTS = ("error", "majority")
NO_TIME = np.iinfo(np.int64).min
NO_SOURCE = -1
_REGION_ONLY = np.int8(-2)

_COLUMNS = ("image", "label", "present", "kind", "time")
_BELONGS = {
    "label": "in the class list of the dataset",
    "image": "in the image table",
    "kind": f"one of {', '.join(KINDS)}",
}


def resolve_labels(dataset: Dataset, split: str | None, conflict: str) -> LabelMatrix:
    """Resolve the rows about the images of a split, and add what follows from the hierarchy.

    Args:
        dataset: whose rows are read.
        split: all images if None.
        conflict: `error` or `majority`.

    Raises:
        DatasetError: if rows contradict each other, or name an image, label or kind that does not exist.
    """
    if conflict not in CONFLICTS:
        raise unknown_name("way to resolve a conflict", conflict, CONFLICTS)
    _refuse_repeated_images(dataset)
    hierarchy = Hierarchy(dataset.classes, dataset.hierarchy)
    selection = Selection.of(dataset, split)
    decided = decide(*collect_answers(dataset, selection.position))
    if len(decided.conflicts) and conflict == "majority":
        resolve_by_vote(decided, newest_rows(dataset, selection.position, decided.conflicts))
    elif len(decided.conflicts):
        rows = newest_rows(dataset, selection.position, decided.conflicts[:1])
        message = describe_conflict(dataset, selection, rows, int(decided.conflicts[0]))
        raise DatasetError(f"{dataset.where()}: {message}.")
    keys, values, contradictions = hierarchy.close(decided.keys, decided.values)
    if len(contradictions):
        child, ancestor = (int(key) for key in contradictions[0])
        rows = newest_rows(dataset, selection.position, np.unique(contradictions[:1]))
        message = describe_contradiction(dataset, selection, rows, child, ancestor)
        raise DatasetError(f"{dataset.where()}: {message}.")
    return LabelMatrix.from_keys(keys, values, (len(selection.rows), len(dataset.classes)))


@dataclass(frozen=True)
class Selection:
    """The images whose labels are resolved.

    Attributes:
        rows: their rows in the image table.
        position: position of each row of the image table among them, -1 for the others.
    """

    rows: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: Dataset, split: str | None) -> Selection:
        """The images of a split, or all."""
        rows = np.arange(len(dataset)) if split is None else dataset.split(split)
        position = np.full(len(dataset) + 1, -1, dtype=np.int64)  # the last one is for images not in the table
        position[rows] = np.arange(len(rows))
        return cls(rows, position)


# Deciding


@dataclass
class Decided:
    """Labels of distinct (image, label) pairs.

    Attributes:
        keys: image·L + class of each pair, ascending.
        values: 1 present, 0 absent, -1 unknown.
        conflicts: keys, ascending, whose newest rows contradict each other; their value is -1.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.int8]
    conflicts: NDArray[np.int64]


def decide(keys: NDArray[np.int64], answers: NDArray[np.int8], times: NDArray[np.int64] | None = None) -> Decided:
    """The deciding answer for each key. Mutates `keys`; do not reuse it.

    Args:
        keys: image·L + class of each row.
        answers: 1, 0 or -1 of each row.
        times: microseconds, `NO_TIME` where a row has none; None if no row has one.

    >>> decide(np.array([5, 3, 5]), np.array([0, 1, 1], np.int8), np.array([10, 10, 20])).values.tolist()
    [1, 1]
    """
    if (keys[1:] > keys[:-1]).all():
        return Decided(keys, answers, np.empty(0, np.int64))
    if times is not None:
        keys, answers = _without_superseded(keys, answers, times)
    return _decide_same_age(keys, answers)


def vote(keys: NDArray[np.int64], answers: NDArray[np.int8], sources: NDArray[np.int64]) -> Decided:
    """The answer for each key that more than half of its votes agree on, or unknown.

    Args:
        keys: image·L + class of the newest rows about each pair.
        answers: 1, 0 or -1 of each row.
        sources: a number for each source, `NO_SOURCE` where a row has none.
    """
    sources = np.where(sources == NO_SOURCE, -1 - np.arange(len(sources)), sources)
    order = np.lexsort((answers, sources, keys))
    keys, answers, sources = keys[order], answers[order], sources[order]
    distinct = np.ones(len(keys), dtype=bool)
    distinct[1:] = (keys[1:] != keys[:-1]) | (sources[1:] != sources[:-1]) | (answers[1:] != answers[:-1])
    keys, answers = keys[distinct], answers[distinct]
    pairs, pair, votes = np.unique(keys, return_inverse=True, return_counts=True)
    values = np.full(len(pairs), UNKNOWN, dtype=np.int8)
    for value in (NEGATIVE, POSITIVE):
        values[2 * np.bincount(pair[answers == value], minlength=len(pairs)) > votes] = value
    return Decided(pairs, values, np.empty(0, np.int64))


def resolve_by_vote(decided: Decided, rows: NewestRows) -> None:
    """Replace the value of each conflict by the outcome of the vote, in place."""
    voted = vote(rows.keys, rows.answers, rows.sources)
    decided.values[np.searchsorted(decided.keys, voted.keys)] = voted.values


def _without_superseded(
    keys: NDArray[np.int64], answers: NDArray[np.int8], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The newest rows about each key; times are compared only for the few keys with several rows."""
    ascending = np.sort(keys)
    repeated = np.unique(ascending[1:][ascending[1:] == ascending[:-1]])
    del ascending
    if not len(repeated):
        return keys, answers
    rows = np.flatnonzero(in_sorted(repeated, keys))
    pair = np.searchsorted(repeated, keys[rows])
    newest = np.full(len(repeated), NO_TIME)
    np.maximum.at(newest, pair, times[rows])
    superseded = rows[times[rows] < newest[pair]]
    return np.delete(keys, superseded), np.delete(answers, superseded)


def _decide_same_age(keys: NDArray[np.int64], answers: NDArray[np.int8]) -> Decided:
    """Decide where all rows of a key have the same age: key and answer are sorted as one number, in place."""
    keys *= 4
    keys += answers + 1
    if not (keys[1:] >= keys[:-1]).all():
        keys.sort()
    pairs = keys >> 2
    begins = np.ones(len(keys), dtype=bool)
    np.not_equal(pairs[1:], pairs[:-1], out=begins[1:])
    first = np.flatnonzero(begins)
    least, most = keys[first], keys[np.append(first[1:], len(keys)) - 1]
    values = (least & 3).astype(np.int8) - np.int8(1)
    conflict = least != most
    values[conflict] = UNKNOWN
    least >>= 2
    return Decided(least, values, least[conflict])


# Reading rows


@dataclass(frozen=True)
class Answers:
    """What some rows say about their images.

    Attributes:
        rows: row numbers.
        keys: image·L + class.
        values: 1, 0 or -1 (cannot tell).
        times: microseconds, `NO_TIME` where a row has none; None if none has one.
        sources: only if requested.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    values: NDArray[np.int8]
    times: NDArray[np.int64] | None
    sources: pa.Array | None = None


def stream_answers(
    dataset: Dataset, position: NDArray[np.int64], *, sources: bool = False, strict: bool = True
) -> Iterator[Answers]:
    """Stream the answers about the images of a selection.

    Args:
        dataset: whose rows are read.
        position: of a `Selection`.
        sources: whether to read the source of each row.
        strict: whether a row with an unknown image, label or kind is an error; otherwise it is skipped.
    """
    images, classes = Lookup(dataset.images["image"]), Lookup(pa.array(dataset.classes, pa.string()))
    kinds = Lookup(pa.array(KINDS, pa.string()))
    width, offset = len(dataset.classes), 0
    for batch in dataset.scan([*_COLUMNS, "source"] if sources else list(_COLUMNS)):
        codes = {"label": classes.codes(batch["label"]), "image": images.codes(batch["image"])}
        codes["kind"] = kinds.codes(batch["kind"])
        found = np.ones(batch.num_rows, dtype=bool)
        for column, code in codes.items():
            found &= code >= 0
            if strict and not found.all():
                raise _unknown_value(dataset, batch, int(np.flatnonzero(~found)[0]), offset, column)
        present = pc.fill_null(batch["present"].cast(pa.int8()), UNKNOWN).to_numpy(zero_copy_only=False)
        located = codes["kind"] != KINDS.index("image")
        values = np.where(located & (present == NEGATIVE), _REGION_ONLY, present)
        at = position[codes["image"]]
        use = np.flatnonzero(found & (at >= 0) & (values != _REGION_ONLY))
        yield Answers(
            rows=use + offset,
            keys=at[use] * width + codes["label"][use],
            values=values[use],
            times=_times(batch["time"], use),
            sources=batch["source"].take(pa.array(use)) if sources else None,
        )
        offset += batch.num_rows


def collect_answers(
    dataset: Dataset, position: NDArray[np.int64], *, strict: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64] | None]:
    """Keys, answers and times of all rows about the images of a selection; see `stream_answers`."""
    keys, values, times = GrowingArray(np.int64), GrowingArray(np.int8), GrowingArray(np.int64)
    timed = False
    for batch in stream_answers(dataset, position, strict=strict):
        keys.add(batch.keys)
        values.add(batch.values)
        if batch.times is not None and not timed:
            timed = True
            times.add(np.full(len(keys) - len(batch.keys), NO_TIME))
        if timed:
            times.add(np.full(len(batch.keys), NO_TIME) if batch.times is None else batch.times)
    pa.default_memory_pool().release_unused()
    return keys.whole(), values.whole(), times.whole() if timed else None


@dataclass(frozen=True)
class NewestRows:
    """The newest rows about some pairs, in the order of the file.

    Attributes:
        rows: row numbers.
        keys: image·L + class.
        answers: 1, 0 or -1.
        sources: a number for each distinct source, `NO_SOURCE` where a row has none.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    answers: NDArray[np.int8]
    sources: NDArray[np.int64]

    def first(self, key: int, answer: int | None = None, *, other_than: int | None = None) -> int:
        """The first row about a pair, optionally only among those with this answer or with another one."""
        chosen = self.keys == key
        if answer is not None:
            chosen &= self.answers == answer
        if other_than is not None:
            chosen &= self.answers != other_than
        return int(self.rows[np.flatnonzero(chosen)[0]])


def newest_rows(
    dataset: Dataset, position: NDArray[np.int64], keys: NDArray[np.int64], *, strict: bool = True
) -> NewestRows:
    """Read the rows again, and keep the newest about each of these keys, which must be ascending."""
    rows, found, answers, times, sources = [], [], [], [], []
    for batch in stream_answers(dataset, position, sources=True, strict=strict):
        use = np.flatnonzero(in_sorted(keys, batch.keys))
        rows.append(batch.rows[use])
        found.append(batch.keys[use])
        answers.append(batch.values[use])
        times.append(np.full(len(use), NO_TIME) if batch.times is None else batch.times[use])
        assert batch.sources is not None
        sources.append(batch.sources.take(pa.array(use)).cast(pa.string()))
    key, time = _joined(found, np.int64), _joined(times, np.int64)
    newest = np.full(len(keys), NO_TIME)
    np.maximum.at(newest, np.searchsorted(keys, key), time)
    live = time == newest[np.searchsorted(keys, key)]
    source = pa.chunked_array(sources, pa.string()).combine_chunks().dictionary_encode()
    numbers = source.indices.fill_null(NO_SOURCE).to_numpy(zero_copy_only=False).astype(np.int64)
    return NewestRows(_joined(rows, np.int64)[live], key[live], _joined(answers, np.int8)[live], numbers[live])


def _times(column: pa.Array, use: NDArray[np.int64]) -> NDArray[np.int64] | None:
    if column.null_count == len(column):
        return None
    times: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), NO_TIME).to_numpy(zero_copy_only=False)
    return times[use]


def _joined(parts: list[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts])


# Errors


def describe_conflict(dataset: Dataset, selection: Selection, rows: NewestRows, key: int) -> str:
    """A sentence about two rows of the same age that contradict each other."""
    image, label = _image_and_label(dataset, selection, key)
    first = rows.first(key)
    second = rows.first(key, other_than=int(rows.answers[rows.rows == first][0]))
    return (
        f"rows {first} and {second} contradict each other about label '{label}' of image '{image}' and neither is "
        "newer; give them times, drop one, or let the majority decide"
    )


def describe_contradiction(dataset: Dataset, selection: Selection, rows: NewestRows, child: int, ancestor: int) -> str:
    """A sentence about a class that is present while one of its ancestors is absent."""
    image, label = _image_and_label(dataset, selection, child)
    _, above = _image_and_label(dataset, selection, ancestor)
    yes, no = rows.first(child, POSITIVE), rows.first(ancestor, NEGATIVE)
    return (
        f"row {yes} says that image '{image}' shows '{label}', and row {no} that it does not show '{above}', "
        f"of which '{label}' is a kind; correct one of them, or the hierarchy"
    )


def _image_and_label(dataset: Dataset, selection: Selection, key: int) -> tuple[str, str]:
    at, label = divmod(key, len(dataset.classes))
    return str(dataset.images["image"][int(selection.rows[at])].as_py()), dataset.classes[label]


def _unknown_value(dataset: Dataset, batch: pa.RecordBatch, row: int, offset: int, column: str) -> DatasetError:
    """The error for a row whose image, label or kind does not exist."""
    value = batch[column][row].as_py()
    named = f"it has no {column}, which must be" if value is None else f"{column} '{value}' is not"
    return DatasetError(
        f"{dataset.where()}, row {offset + row}: {named} {_BELONGS[column]}; correct it, add it there or drop the row."
    )


def _refuse_repeated_images(dataset: Dataset) -> None:
    names = dataset.images["image"]
    if (rows := Lookup(names).repeated()) is not None:
        raise DatasetError(
            f"{dataset.where('images')}: image '{names[rows[0]]}' is listed twice, in rows {rows[0]} and {rows[1]}; "
            "drop one."
        )
