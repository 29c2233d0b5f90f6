"""Rows in a file that can go back to either of the last two checkpoints, read ahead and written back by a thread.

**`JournaledArray`** is one file, changed in place through the page cache. Before a row changes for the first time after
a checkpoint, its old content goes to the undo journal of that checkpoint. Going back to checkpoint k writes the
journals k, k+1, … back in reverse order. Journals are only appended to, each record carries a checksum, and a record is
complete before its rows change, so a torn last record belongs to rows that did not change.

**`BackgroundArray`** wraps it, so that training does not wait for the disk. One thread takes jobs in order. To write a
batch of rows, it saves their old content in the undo journal, changes them and updates their checksums; until that is
done, reading one of these rows returns the new content. Reading ahead only brings rows into the page cache and so never
returns stale content. Durability does not change: a write that the thread has not done yet is lost by a kill, as one a
moment later would be, and going back to a checkpoint undoes the others. A checkpoint waits for the thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import shutil
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import RunError

_HEADER = struct.Struct("<4sII")  # magic, number of rows, checksum
_MAGIC = b"UNDO"
_JOURNALS = 2  # size relative to the array, at most: a row is saved once per interval, and visited once per epoch


class JournaledArray:
    """n rows of uint8 in a file, with an undo journal for each checkpoint interval.

    Args:
        path: of the array; journals lie beside it as `<name>.undo-<checkpoint>`.
        shape: of the whole array, rows first.
        create: create the file, filled with zeros; otherwise it must exist.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], *, create: bool) -> None:
        self.path = path
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            for journal in self._journals().values():
                journal.unlink()
            _allocate(path, int(np.prod(shape)))
        elif not path.is_file() or path.stat().st_size != int(np.prod(shape)):
            raise RunError(f"{path} is missing or has the wrong size; this run cannot be resumed.")
        self._rows = (
            np.memmap(path, dtype=np.uint8, mode="r+", shape=shape) if np.prod(shape) else np.empty(shape, np.uint8)
        )
        self.row_bytes = int(np.prod(shape[1:]))
        self._saved = np.ones(len(self._rows), dtype=bool)  # nothing to save before the first checkpoint
        self._journal: int | None = None
        self._digests = np.zeros(len(self._rows), dtype=np.uint64)
        if create and len(self._rows):
            self._digests[:] = self._digest(np.zeros(1, dtype=np.int64)) * _weights(np.arange(len(self._rows)))

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """A copy of these rows."""
        return np.asarray(self._rows[rows])

    def write(self, rows: NDArray[np.int64], values: NDArray[np.uint8]) -> None:
        """Change these rows, each at most once in a call."""
        fresh = rows[~self._saved[rows]]
        if len(fresh):
            self._append(fresh)
            self._saved[fresh] = True
        self._rows[rows] = values
        self._digests[rows] = self._digest(rows)

    def checksum(self) -> str:
        """A checksum of the whole content, kept up to date row by row."""
        return f"{int(self._digests.sum(dtype=np.uint64)):016x}"

    def written(self) -> Path:
        """The path of the file, with all changes written."""
        self._flush()
        return self.path

    def mark(self, checkpoint: int) -> None:
        """Make the current content that of `checkpoint`; later changes can be undone back to it."""
        self._flush()
        if self._journal is not None:
            os.fsync(self._journal)
            os.close(self._journal)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._journal = os.open(self._journal_path(checkpoint), flags, 0o644)
        self._saved[:] = False

    def forget(self, before: int) -> None:
        """Delete the journals of checkpoints older than `before`."""
        for checkpoint, journal in self._journals().items():
            if checkpoint < before:
                journal.unlink()

    def roll_back(self, checkpoint: int, checksum: str) -> None:
        """Restore the content of `checkpoint` and continue from there.

        Raises:
            RunError: if the content does not have the checksum that the checkpoint recorded.
        """
        journals = self._journals()
        newest_first = sorted((number for number in journals if number >= checkpoint), reverse=True)
        for number in newest_first:
            for rows, values in _records(journals[number], self._rows[:1].size):
                self._rows[rows] = values.reshape(len(rows), *self._rows.shape[1:])
        self._digests = self._digest(np.arange(len(self._rows)))
        if self.checksum() != checksum:
            raise RunError(
                f"{self.path} does not match its checkpoint and its undo journals; this run cannot be resumed."
            )
        self._flush()
        for number in newest_first:  # in this order, so that those left by an interruption can be applied again
            if number > checkpoint:
                journals[number].unlink()
        self.mark(checkpoint)

    def close(self) -> None:
        """Close the files."""
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None

    def _flush(self) -> None:
        if isinstance(self._rows, np.memmap):
            self._rows.flush()

    def _append(self, rows: NDArray[np.int64]) -> None:
        assert self._journal is not None
        body = rows.astype("<i8").tobytes() + self._rows[rows].tobytes()
        record = memoryview(_HEADER.pack(_MAGIC, len(rows), zlib.crc32(body)) + body)
        try:
            while record:
                record = record[os.write(self._journal, record) :]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise RunError(
                f"There is no room for the undo journal of {self.path}; nothing was lost. Free some space and resume "
                "the run."
            ) from None

    def _digest(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """A number for each row that depends on its position and its content."""
        digests = np.empty(len(rows), dtype=np.uint64)
        for at, row in enumerate(rows):
            digests[at] = int.from_bytes(hashlib.blake2b(self._rows[row].tobytes(), digest_size=8).digest(), "little")
        return digests * _weights(rows)

    def _journal_path(self, checkpoint: int) -> Path:
        return self.path.with_name(f"{self.path.name}.undo-{checkpoint}")

    def _journals(self) -> dict[int, Path]:
        found = self.path.parent.glob(f"{self.path.name}.undo-*")
        return {int(path.name.rpartition("-")[2]): path for path in found}


def _allocate(path: Path, size: int) -> None:
    """Create a file of zeros with its space on disk reserved, so that a full disk shows now and not during the run."""
    free = shutil.disk_usage(path.parent).free
    if size * _JOURNALS > free - size:
        raise RunError(
            f"{path} takes {size / 1e9:.2f} GB and its undo journals up to {_JOURNALS * size / 1e9:.2f} GB, but "
            f"{free / 1e9:.2f} GB are free; free some space, keep fewer classes per image, or set "
            "memory.storage to ram."
        )
    with path.open("wb") as file:
        file.truncate(size)
        try:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                return  # a file system that cannot reserve space
            path.unlink()
            raise RunError(
                f"There is no room for {size / 1e9:.2f} GB of per-image state at {path}; free some space, or set "
                "memory.storage to ram."
            ) from None


def _weights(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """An odd factor for each position, so that the same content counts differently in another row."""
    return 2 * rows.astype(np.uint64) + 1


def _records(journal: Path, row_bytes: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """The complete records of a journal, in the order written; an iterator, because a journal can be large."""
    left = journal.stat().st_size
    with journal.open("rb") as file:
        while (left := left - _HEADER.size) >= 0:
            magic, count, checksum = _HEADER.unpack(file.read(_HEADER.size))
            left -= count * (8 + row_bytes)
            if magic != _MAGIC or left < 0:
                return
            body = file.read(count * (8 + row_bytes))
            if zlib.crc32(body) != checksum:
                return
            yield np.frombuffer(body, "<i8", count), np.frombuffer(body, np.uint8, offset=8 * count)


_QUEUE = 8  # jobs; beyond that, training waits for the thread


class BackgroundArray:
    """A `JournaledArray` whose writes happen in a thread of their own.

    Args:
        array: what is read and written; it may not be used directly any more.
    """

    def __init__(self, array: JournaledArray) -> None:
        self.path = array.path
        self._array = array
        self._row_bytes = array.row_bytes
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=_QUEUE)
        self._lock = threading.Lock()
        self._ticket = 0
        self._pending: dict[int, tuple[int, NDArray[np.uint8]]] = {}  # rows on their way to the file, newest content
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """A copy of these rows, with everything written so far."""
        with self._lock:
            waiting = {at: self._pending[row][1] for at, row in enumerate(rows.tolist()) if row in self._pending}
        values = self._array.read(rows)
        for at, content in waiting.items():
            values[at] = content
        return values

    def read_ahead(self, rows: NDArray[np.int64]) -> None:
        """Announce that these rows will be read soon; ignored if the thread is busy."""
        self._raise()
        try:
            self._started().put_nowait(lambda: self._touch(rows))
        except queue.Full:
            return

    def write(self, rows: NDArray[np.int64], values: NDArray[np.uint8]) -> None:
        """Change these rows, each at most once in a call; do not change `values` afterwards."""
        self._raise()
        self._ticket += 1
        ticket = self._ticket
        with self._lock:
            self._pending |= {row: (ticket, content) for row, content in zip(rows.tolist(), values, strict=True)}
        self._started().put(lambda: self._write(rows, values, ticket))

    def checksum(self) -> str:
        """A checksum of the whole content."""
        self.settle()
        return self._array.checksum()

    def written(self) -> Path:
        """The path of the file, with all changes written."""
        self.settle()
        return self._array.written()

    def mark(self, checkpoint: int) -> None:
        """Make the current content that of `checkpoint`; later changes can be undone back to it."""
        self.settle()
        self._array.mark(checkpoint)

    def forget(self, before: int) -> None:
        """Delete the journals of checkpoints older than `before`."""
        self.settle()
        self._array.forget(before)

    def roll_back(self, checkpoint: int, checksum: str) -> None:
        """Restore the content of `checkpoint` and continue from there."""
        self.settle()
        self._array.roll_back(checkpoint, checksum)

    def settle(self) -> None:
        """Wait until everything is written.

        Raises:
            OSError: if something could not be written.
        """
        self._jobs.join()
        self._raise()

    def close(self) -> None:
        """Write what is waiting, and close the files."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._array.close()

    def _started(self) -> queue.Queue[Callable[[], None] | None]:
        """The queue of the running thread, which starts with the first job, so that a process may fork before that."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"writes {self.path.name}", daemon=True)
            self._thread.start()
        return self._jobs

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._error is None:
                    job()
            except BaseException as error:
                self._error = error
            finally:
                self._jobs.task_done()
        self._jobs.task_done()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self, rows: NDArray[np.int64], values: NDArray[np.uint8], ticket: int) -> None:
        self._array.write(rows, values)
        with self._lock:
            for row in rows.tolist():
                if self._pending[row][0] == ticket:  # else a later write is waiting
                    del self._pending[row]

    def _touch(self, rows: NDArray[np.int64]) -> None:
        file = os.open(self.path, os.O_RDONLY)
        try:
            for row in rows.tolist():
                os.pread(file, self._row_bytes, row * self._row_bytes)
        finally:
            os.close(file)
