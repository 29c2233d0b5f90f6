"""The log of a review: every decision and every undoing, appended, synced, never rewritten.

A line is a JSON object with a checksum of itself. A decision is confirmed to the reviewer after its line is on disk, so
whatever is damaged at the end of a log after a crash was never confirmed, and is cut off when the log is opened.


From the log of a review to rows of the dataset.

Each decision that holds becomes a row with `source` review, the time of the decision and what it cost. Folding compares
what the log says with what the rows say, so doing it twice, or after a crash in between, changes nothing; a decision
that was undone after it had become a row loses its row.
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

from tagfill.dataset import Dataset, tables
from tagfill.dataset.tables import SCHEMA, from_records
from tagfill.errors import TagfillError
from tagfill.io import atomic_write, sync_folder

DECIDE, UNDO = "decide", "undo"


class NotWrittenError(TagfillError):
    """A decision that the disk did not take."""


@dataclass(frozen=True)
class Entry:
    """A line of the log.

    Attributes:
        number: 1, 2, 3…
        id: chosen by whoever sent it; a second one with the same id is the same.
        action: `decide` or `undo`.
        image: of the pair.
        label: of the pair.
        present: what was decided: present, absent, or None: cannot tell. For `undo`, what was undone.
        who: the reviewer's name.
        time: when, ISO 8601 in UTC, later than that of every earlier line.
        seconds: what it cost.
        previous: what was known of the pair before: `present`, `absent`, `cannot tell` or `unknown`.
        undoes: for `undo`, the id of the decision that it takes back.
        group: shared by decisions that were made at one stroke.
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
    def moment(self) -> datetime:
        """When."""
        return datetime.fromisoformat(self.time)

    def line(self) -> bytes:
        """As it stands in the file."""
        content = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))
        return f'{{"check":"{zlib.crc32(content.encode()):08x}","entry":{content}}}\n'.encode()

    @classmethod
    def parse(cls, line: bytes) -> Entry:
        """The entry of a line; a ValueError if it is damaged."""
        outer: dict[str, Any] = json.loads(line)
        content = outer["entry"]
        entry = cls(**content)
        if not line.endswith(b"\n") or entry.line() != line:
            raise ValueError("the checksum does not fit")
        return entry


class Log:
    """An open log; one process at a time may hold it.

    Args:
        path: of the file; made if it is missing.

    Raises:
        TagfillError: if a line other than the last is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.entries, whole = _read(path)
        self._file = path.open("ab")
        if self._file.tell() > whole:
            self._cut(whole)
        sync_folder(path.parent)
        self._ids = {entry.id: entry for entry in self.entries}

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def find(self, id_: str) -> Entry | None:
        """The entry with this id."""
        return self._ids.get(id_)

    def next_time(self, ahead: int = 0) -> str:
        """Now, or later where the clock went back: after the last line and `ahead` more that are about to come."""
        now = datetime.now(UTC) + timedelta(microseconds=ahead)
        if self.entries:
            now = max(now, self.entries[-1].moment + timedelta(microseconds=1 + ahead))
        return now.isoformat(timespec="microseconds")

    def append(self, entries: Sequence[Entry]) -> None:
        """Put these on disk; when this returns they are there for good, and if it fails none of them is.

        Raises:
            NotWrittenError: if there is no room for them, as on a full disk.
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
        """Forget what the file object still holds, and cut what part of it came to the disk."""
        os.ftruncate(self._file.fileno(), size)
        descriptor = os.dup(self._file.fileno())
        with suppress(OSError):  # its buffer could not be written either, and is gone now
            self._file.close()
        os.ftruncate(descriptor, size)
        self._file = os.fdopen(descriptor, "ab")

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        os.fsync(self._file.fileno())


def _read(path: Path) -> tuple[list[Entry], int]:
    """The entries of a log, and how many of its bytes are whole lines."""
    entries: list[Entry] = []
    whole = 0
    content = path.read_bytes() if path.exists() else b""
    lines = list(_lines(content))
    for position, line in enumerate(lines):
        try:
            entries.append(Entry.parse(line))
        except (ValueError, KeyError, TypeError):
            if position < len(lines) - 1:
                raise TagfillError(
                    f"{path}, line {position + 1}, is damaged; restore it from a backup, or move the file away to "
                    "begin a new log."
                ) from None
            break
        whole += len(line)
    return entries, whole


def _lines(content: bytes) -> Iterator[bytes]:
    """Lines with their ends; the last one may have none."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start) + 1 or len(content)
        yield content[start:end]
        start = end


SOURCE = "review"


def apply_decisions(dataset: Dataset, entries: Sequence[Entry], live: Sequence[Entry]) -> int:
    """Make the rows of a dataset folder agree with a log.

    Args:
        dataset: opened from a folder; open it again afterwards to see the rows.
        entries: the whole log.
        live: the decisions that hold.

    Returns:
        How many rows were added or taken away; if none, no file is touched.
    """
    if not isinstance(dataset.annotations, Path):
        raise ValueError("only a dataset on disk has rows to add to")
    wanted = {(*entry.pair, entry.moment): entry for entry in live}
    known = {(*entry.pair, entry.moment) for entry in entries if entry.action == DECIDE}
    there: set[tuple[str, str, datetime]] = set()
    stale = 0
    for batch in dataset.scan(["image", "label", "source", "time"]):
        keys = _reviewed(batch, known)
        there.update(key for _, key in keys if key in wanted)
        stale += sum(key not in wanted for _, key in keys)
    fresh = [entry for key, entry in wanted.items() if key not in there]
    if not fresh and not stale:
        return 0
    with atomic_write(dataset.annotations) as file:
        write = tables.table_writer(dataset.annotations.suffix.removeprefix("."))
        write(file, _rows(dataset, known, set(wanted), fresh), SCHEMA)
    return len(fresh) + stale


def _rows(
    dataset: Dataset,
    known: set[tuple[str, str, datetime]],
    wanted: set[tuple[str, str, datetime]],
    fresh: Sequence[Entry],
) -> Iterator[pa.RecordBatch]:
    """The rows as they will be: without those of decisions that no longer hold, then the new ones."""
    for batch in dataset.scan():
        stale = [row for row, key in _reviewed(batch, known) if key not in wanted]
        yield batch.take(pa.array(np.delete(np.arange(batch.num_rows), stale))) if stale else batch
    yield from _as_rows(fresh).to_batches()


def _as_rows(entries: Sequence[Entry]) -> pa.Table:
    return from_records(
        [
            {
                "image": entry.image,
                "label": entry.label,
                "present": entry.present,
                "source": SOURCE,
                "time": entry.moment,
                "seconds": entry.seconds,
            }
            for entry in entries
        ]
    )


def _reviewed(
    batch: pa.RecordBatch, known: set[tuple[str, str, datetime]]
) -> list[tuple[int, tuple[str, str, datetime]]]:
    """Positions and keys of the rows that come from this log."""
    rows = np.flatnonzero(
        pc.fill_null(pc.equal(batch["source"], SOURCE), False).to_numpy(zero_copy_only=False)
        & batch["time"].is_valid().to_numpy(zero_copy_only=False)
    )
    few = batch.select(["image", "label", "time"]).take(pa.array(rows)).to_pylist()
    keys = [(one["image"], one["label"], one["time"]) for one in few]
    return [(int(row), key) for row, key in zip(rows, keys, strict=True) if key in known]
