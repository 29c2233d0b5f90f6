"""Decisions of a review: the log that keeps them, and the rows of the dataset that they become.

The log is append-only. Each line is a JSON object with a checksum of itself. A decision is confirmed to the reviewer
after its line is on disk, so a damaged end of the file, as a crash leaves it, was never confirmed; it is cut off when
the log is opened.

Each decision in force becomes a row with `source` review, the time of the decision and its cost in seconds.
`apply_decisions` compares the log with the rows, so calling it twice, or again after a crash, changes nothing. If a
decision is undone after it has become a row, the row is removed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import replace_table
from tagfill.dataset.tables import from_records
from tagfill.errors import TagfillError
from tagfill.io import sync_folder

DECIDE, UNDO = "decide", "undo"
SOURCE = "review"
_Key = tuple[str, str, datetime]  # image, label and time of a decision


class NotWrittenError(TagfillError):
    """A decision could not be written to the log."""


@dataclass(frozen=True)
class LogEntry:
    """A line of the log.

    Attributes:
        number: 1, 2, 3…
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

    number: int
    id: str
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

    def line(self) -> bytes:
        """Serialize to a line of the file."""
        content = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))
        return f'{{"check":"{zlib.crc32(content.encode()):08x}","entry":{content}}}\n'.encode()

    @classmethod
    def parse(cls, line: bytes) -> LogEntry:
        """Read a line; raises ValueError, KeyError or TypeError if it is damaged."""
        outer: dict[str, Any] = json.loads(line)
        content = outer["entry"]
        entry = cls(**content)
        if not line.endswith(b"\n") or entry.line() != line:
            raise ValueError("the checksum does not match")
        return entry


class DecisionLog:
    """An open log; the caller makes sure that no other process has it open.

    Args:
        path: the file; created if it is missing.

    Raises:
        TagfillError: if a line other than the last is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.entries, valid_bytes = _read_log(path)
        self._file = path.open("ab")
        if self._file.tell() > valid_bytes:
            self._truncate(valid_bytes)
        sync_folder(path.parent)
        self._ids = {entry.id: entry for entry in self.entries}

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def find(self, id_: str) -> LogEntry | None:
        """The entry with this id, or None."""
        return self._ids.get(id_)

    def next_time(self, ahead: int = 0) -> str:
        """A time for the next entry that is later than all earlier ones, even if the clock was set back.

        Args:
            ahead: entries that will be written before it.
        """
        now = datetime.now(UTC) + timedelta(microseconds=ahead)
        if self.entries:
            now = max(now, self.entries[-1].timestamp + timedelta(microseconds=1 + ahead))
        return now.isoformat(timespec="microseconds")

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Write entries to disk, all or none; they are synced when this returns.

        Raises:
            NotWrittenError: if the disk is full or fails; then none of them is in the log.
        """
        before = self._file.tell()
        try:
            self._file.write(b"".join(entry.line() for entry in entries))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._reopen(before)
            raise NotWrittenError(f"The decision could not be written to {self.path}: {error.strerror}.") from None
        self.entries.extend(entries)
        self._ids.update((entry.id, entry) for entry in entries)

    def _reopen(self, size: int) -> None:
        """Discard the buffer of the file object and truncate what part of it reached the disk."""
        os.ftruncate(self._file.fileno(), size)
        descriptor = os.dup(self._file.fileno())
        with suppress(OSError):  # closing tries to write the buffer and fails again
            self._file.close()
        os.ftruncate(descriptor, size)
        self._file = os.fdopen(descriptor, "ab")

    def _truncate(self, size: int) -> None:
        self._file.truncate(size)
        os.fsync(self._file.fileno())


def _read_log(path: Path) -> tuple[list[LogEntry], int]:
    """The entries of a log, and the number of bytes that they take; the last line may be damaged."""
    entries: list[LogEntry] = []
    valid_bytes = 0
    content = path.read_bytes() if path.exists() else b""
    lines = list(_lines(content))
    for position, line in enumerate(lines):
        try:
            entries.append(LogEntry.parse(line))
        except (ValueError, KeyError, TypeError):
            if position < len(lines) - 1:
                raise TagfillError(
                    f"{path}, line {position + 1}, is damaged; restore it from a backup, or move the file away to "
                    "start a new log."
                ) from None
            break
        valid_bytes += len(line)
    return entries, valid_bytes


def _lines(content: bytes) -> Iterator[bytes]:
    """Lines with their line feeds; the last one may have none."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start) + 1 or len(content)
        yield content[start:end]
        start = end


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
