"""A file of rows that is read ahead and written back by a thread, so that training does not wait for the disk.

One thread takes jobs in the order given. Writing a batch of rows saves their old content in the undo journal, changes
them and updates their checksums, all there; whoever asks for one of these rows before that is done gets what is about
to be written. Reading ahead only brings rows into the page cache, so it can never serve what is out of date.

Nothing changes about what survives: a write that the thread did not come to is lost by a kill as one a moment later
would be, and going back to a checkpoint undoes the others. A checkpoint waits for the thread.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.memory.journal import JournaledArray

_WAITING = 8  # jobs; training waits for the thread beyond that


class BackgroundArray:
    """A `JournaledArray` whose writes happen in a thread of their own.

    Args:
        array: what is read and written; nobody else may use it from now on.
    """

    def __init__(self, array: JournaledArray) -> None:
        self.path = array.path
        self._array = array
        self._row_bytes = array.row_bytes
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=_WAITING)
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
        """These rows will be read soon; nothing happens if the thread is busy."""
        self._raise()
        try:
            self._started().put_nowait(lambda: self._touch(rows))
        except queue.Full:
            return

    def write(self, rows: NDArray[np.int64], values: NDArray[np.uint8]) -> None:
        """Change these rows, each at most once in a call; the values may not be changed afterwards."""
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
        """The path of the array, with all changes in the file."""
        self.settle()
        return self._array.written()

    def mark(self, checkpoint: int) -> None:
        """Content as of now belongs to `checkpoint`; later changes can be undone back to here."""
        self.settle()
        self._array.mark(checkpoint)

    def forget(self, before: int) -> None:
        """Journals of checkpoints older than `before` are no longer needed."""
        self.settle()
        self._array.forget(before)

    def roll_back(self, checkpoint: int, checksum: str) -> None:
        """Restore the content of `checkpoint` and go on from there."""
        self.settle()
        self._array.roll_back(checkpoint, checksum)

    def settle(self) -> None:
        """Wait until everything is written.

        Raises:
            OSError: if something could not be.
        """
        self._jobs.join()
        self._raise()

    def close(self) -> None:
        """Write what is waiting, and let go of the files."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._array.close()

    def _started(self) -> queue.Queue[Callable[[], None] | None]:
        """The queue of a thread that runs; it begins with the first job, so that a process may fork before."""
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
