"""Collecting simulated rows: in memory while they are few, beyond that in a temporary Parquet file."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.annotations import SCHEMA

IN_MEMORY = 1 << 19


class _Spool(type(Path())):  # type: ignore[misc]
    """The path of a temporary file that is deleted with the last dataset that refers to it."""


class RowWriter:
    """Takes batches of rows, whose text may be coded as dictionaries, and gives the annotations of a dataset."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._spool: _Spool | None = None
        self._file: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        if batch.num_rows == 0:
            return
        batch = batch.cast(SCHEMA)
        self._rows += batch.num_rows
        if self._file is None and self._rows > self._in_memory:
            self._start_spool()
        if self._file is None:
            self._held.append(batch)
        else:
            self._file.write_batch(batch)

    def close(self) -> pa.Table | Path:
        """Everything that was written, as a table or as the path of a file."""
        if self._file is None:
            return pa.Table.from_batches(self._held, schema=SCHEMA)
        self._file.close()
        assert self._spool is not None
        return self._spool

    def _start_spool(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="tagfill-rows-", suffix=".parquet", delete=False) as file:
            self._spool = _Spool(file.name)
        weakref.finalize(self._spool, Path(file.name).unlink, missing_ok=True)
        self._file = pq.ParquetWriter(file.name, SCHEMA, compression="zstd")
        for held in self._held:
            self._file.write_batch(held)
        self._held = []
