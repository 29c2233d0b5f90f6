"""Append-only logs of what people did, from which the rows of a dataset are made.

Each line is a JSON object with a checksum of itself. An entry is confirmed to its sender after its line is on disk, so
a damaged end of the file, as a crash leaves it, was never confirmed; it is cut off when the log is opened.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from tagfill.errors import TagfillError
from tagfill.io import sync_folder


class NotWrittenError(TagfillError):
    """An entry could not be written to a log."""


@dataclass(frozen=True)
class Entry:
    """A line of a log; its fields are JSON values.

    Attributes:
        number: 1, 2, 3…
        id: distinguishes it from other entries.
    """

    number: int
    id: str

    def line(self) -> bytes:
        """Serialize to a line of the file."""
        content = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))
        return f'{{"check":"{zlib.crc32(content.encode()):08x}","entry":{content}}}\n'.encode()

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Read a line; raises ValueError, KeyError or TypeError if it is damaged."""
        outer: dict[str, Any] = json.loads(line)
        content = outer["entry"]
        entry = cls(**content)
        if not line.endswith(b"\n") or entry.line() != line:
            raise ValueError("the checksum does not match")
        return entry


EntryT = TypeVar("EntryT", bound=Entry)


class EntryLog(Generic[EntryT]):
    """An open log; the caller makes sure that no other process has it open.

    Args:
        path: the file; created if it is missing.
        kind: type of its entries.
        what: word for an entry in errors.

    Raises:
        TagfillError: if a line other than the last is damaged.
    """

    def __init__(self, path: Path, kind: type[EntryT], what: str) -> None:
        self.path, self._what = path, what
        path.parent.mkdir(parents=True, exist_ok=True)
        self.entries, valid_bytes = read_log(path, kind)
        self._file = path.open("ab")
        if self._file.tell() > valid_bytes:
            self._truncate(valid_bytes)
        sync_folder(path.parent)
        self._ids = {entry.id: entry for entry in self.entries}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def find(self, id_: str) -> EntryT | None:
        """The newest entry with this id, or None."""
        return self._ids.get(id_)

    def append(self, entries: Sequence[EntryT]) -> None:
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
            raise NotWrittenError(f"The {self._what} could not be written to {self.path}: {error.strerror}.") from None
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


def read_log(path: Path, kind: type[EntryT]) -> tuple[list[EntryT], int]:
    """The entries of a log, and the number of bytes that they take; the last line may be damaged."""
    entries: list[EntryT] = []
    valid_bytes = 0
    content = path.read_bytes() if path.exists() else b""
    lines = list(_lines(content))
    for position, line in enumerate(lines):
        try:
            entries.append(kind.parse(line))
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
