"""Collecting annotation rows: in memory while they are few, beyond that in a temporary Parquet file."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.annotations.rows import SCHEMA

BYTES_IN_MEMORY = 32 << 20


class _Spool(type(Path())):  # type: ignore[misc]
    """The path of a temporary file that is deleted with the last dataset that refers to it."""


class RowSpool:
    """Takes rows in lots of any size and gives the annotations of a dataset.

    Args:
        in_memory: bytes of rows that are held before a file is begun.
    """

    def __init__(self, in_memory: int = BYTES_IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._path: _Spool | None = None
        self._file: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Keep some rows; their text may be coded as dictionaries."""
        if rows.num_rows == 0:
            return
        table = pa.table(rows).cast(SCHEMA)
        if self._file is not None:
            self._file.write_table(table)
            return
        self._held.append(table)
        self._bytes += table.nbytes
        if self._bytes > self._in_memory:
            self._begin_file()

    def close(self) -> pa.Table | Path:
        """Everything that was added, in its order, as a table or as the path of a file."""
        if self._file is None:
            return pa.concat_tables([SCHEMA.empty_table(), *self._held])
        self._file.close()
        assert self._path is not None
        return self._path

    def _begin_file(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="tagfill-rows-", suffix=".parquet", delete=False) as file:
            self._path = _Spool(file.name)
        weakref.finalize(self._path, Path(file.name).unlink, missing_ok=True)
        self._file = pq.ParquetWriter(file.name, SCHEMA, compression="zstd")
        self._file.write_table(pa.concat_tables(self._held))
        self._held = []
