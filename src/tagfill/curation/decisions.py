"""Decisions of a review: the log that keeps them, and the rows of the dataset that they become.

The log is append-only (`tagfill.curation.entry_log`). Each decision in force becomes a row with `source` review, the
time of the decision and its cost in seconds. `apply_decisions` compares the log with the rows, so calling it twice, or
again after a crash, changes nothing. If a decision is undone after it has become a row, the row is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.curation.entry_log import Entry, EntryLog
from tagfill.dataset import Dataset
from tagfill.dataset.dataset import replace_table
from tagfill.dataset.tables import from_records

DECIDE, UNDO = "decide", "undo"
SOURCE = "review"
_Key = tuple[str, str, datetime]  # image, label and time of a decision


@dataclass(frozen=True)
class LogEntry(Entry):
    """A line of the log.

    Attributes:
        id: chosen by the sender; a second entry with the same id is a repetition and does not count.
        action: `decide` or `undo`.
        image: image of the pair.
        label: label of the pair.
        present: the decision: present, absent, or None for "cannot tell". For `undo`, the decision that is undone.
        who: the reviewer's name.
        time: ISO 8601 in UTC, later than that of every earlier line.
        seconds: time that the reviewer spent.
        previous: state of the pair before: `present`, `absent`, `cannot tell` or `unknown`.
        undoes: for `undo`, the id of the decision that is undone.
        group: shared by the decisions of one bulk decision.
    """

    action: str
    image: str
    label: str
    present: bool | None
    who: str
    time: str
    seconds: float
    previous: str
    undoes: str | None = None
    group: str | None = None

    @property
    def pair(self) -> tuple[str, str]:
        """Image and label."""
        return self.image, self.label

    @property
    def timestamp(self) -> datetime:
        """`time` as a datetime."""
        return datetime.fromisoformat(self.time)


class DecisionLog(EntryLog[LogEntry]):
    """An open log of decisions; the caller makes sure that no other process has it open."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, LogEntry, "decision")

    def next_time(self, ahead: int = 0) -> str:
        """A time for the next entry that is later than all earlier ones, even if the clock was set back.

        Args:
            ahead: entries that will be written before it.
        """
        now = datetime.now(UTC) + timedelta(microseconds=ahead)
        if self.entries:
            now = max(now, self.entries[-1].timestamp + timedelta(microseconds=1 + ahead))
        return now.isoformat(timespec="microseconds")


def apply_decisions(
    dataset: Dataset, entries: Sequence[LogEntry], current: Sequence[LogEntry], source: str = SOURCE
) -> int:
    """Make the rows of a dataset folder agree with a log.

    Args:
        dataset: opened from a folder; open it again afterwards to see the rows.
        entries: the whole log.
        current: the decisions in force.
        source: of the rows that they become.

    Returns:
        The number of rows that were added or removed; if it is 0, no file was touched.
    """
    if not isinstance(dataset.annotations, Path):
        raise ValueError("only a dataset on disk has rows to add to")
    wanted = {(*entry.pair, entry.timestamp): entry for entry in current}
    known = {(*entry.pair, entry.timestamp) for entry in entries if entry.action == DECIDE}
    existing: set[_Key] = set()
    stale = 0
    for batch in dataset.scan(["image", "label", "source", "time"]):
        keys = _rows_of_log(batch, known, source)
        existing.update(key for _, key in keys if key in wanted)
        stale += sum(key not in wanted for _, key in keys)
    new = [entry for key, entry in wanted.items() if key not in existing]
    if not new and not stale:
        return 0
    replace_table(dataset, "annotations", _rows(dataset, known, set(wanted), new, source))
    return len(new) + stale


def _rows(
    dataset: Dataset, known: set[_Key], wanted: set[_Key], new: Sequence[LogEntry], source: str
) -> Iterator[pa.RecordBatch]:
    """All rows without those of decisions that are no longer in force, then the new ones."""
    for batch in dataset.scan():
        stale = [row for row, key in _rows_of_log(batch, known, source) if key not in wanted]
        yield batch.take(pa.array(np.delete(np.arange(batch.num_rows), stale))) if stale else batch
    yield from _to_table(new, source).to_batches()


def _to_table(entries: Sequence[LogEntry], source: str) -> pa.Table:
    return from_records(
        [
            {
                "image": entry.image,
                "label": entry.label,
                "present": entry.present,
                "source": source,
                "time": entry.timestamp,
                "seconds": entry.seconds,
            }
            for entry in entries
        ]
    )


def _rows_of_log(batch: pa.RecordBatch, known: set[_Key], source: str) -> list[tuple[int, _Key]]:
    """Positions and keys of the rows that come from this log."""
    rows = np.flatnonzero(
        pc.fill_null(pc.equal(batch["source"], source), False).to_numpy(zero_copy_only=False)
        & batch["time"].is_valid().to_numpy(zero_copy_only=False)
    )
    reviewed = batch.select(["image", "label", "time"]).take(pa.array(rows)).to_pylist()
    keys = [(one["image"], one["label"], one["time"]) for one in reviewed]
    return [(int(row), key) for row, key in zip(rows, keys, strict=True) if key in known]
