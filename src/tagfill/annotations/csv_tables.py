"""The CSV twins of the tables: the same rows as text, without loss.

Text is quoted and an empty cell without quotes is null, so that "007", "", "a, b" and null stay what they are. Times
are ISO 8601 with a zone, flags are a JSON list (`["crowd", "difficult"]`), run lengths are base64.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from tagfill.errors import DatasetError

_BLOCK = 1 << 24  # bytes; a row must fit into one


def header(path: Path) -> list[str]:
    """The names of the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), None)
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DatasetError(f"{path} cannot be read as CSV in UTF-8: {error}.") from None
    if not names:
        raise DatasetError(f"{path} is empty; the first line of a CSV table names its columns.")
    return names


def stream(path: Path, schema: pa.Schema, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a CSV table in batches, in the types of `schema`."""
    as_text = pa.schema([field.with_type(_text_type(field.type)) for field in schema])
    reader = pacsv.open_csv(
        path,
        read_options=pacsv.ReadOptions(use_threads=False, block_size=_BLOCK),  # one thread knows the row of an error
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=as_text,
            include_columns=columns,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    row = 0
    with reader:
        for batch in reader:
            arrays = [_from_text(batch[name], schema.field(name), path, row) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in columns]))
            row += batch.num_rows


def write(file: IO[bytes], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write batches as CSV with a header."""
    as_text = pa.schema([field.with_type(_text_type(field.type)) for field in schema])
    with pacsv.CSVWriter(file, as_text, write_options=pacsv.WriteOptions(quoting_style="needed")) as writer:
        for batch in batches:
            arrays = [_to_text(batch[field.name].cast(field.type)) for field in schema]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=as_text))


def _text_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_list(kind) or pa.types.is_binary(kind) else kind


def _to_text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return _each(column, lambda value: base64.b64encode(value).decode(), pa.string())
    if pa.types.is_list(column.type):
        return _each(column, lambda value: json.dumps(value, ensure_ascii=False), pa.string())
    return column


def _from_text(column: pa.Array, field: pa.Field, path: Path, first: int) -> pa.Array:
    if not (pa.types.is_binary(field.type) or pa.types.is_list(field.type)):
        return column
    read = _bytes if pa.types.is_binary(field.type) else _strings
    try:
        return _each(column, read, field.type)
    except _CellError as error:
        row = first + next(at for at, cell in enumerate(column.to_pylist()) if cell == error.cell)
        raise DatasetError(
            f"{path}, row {row}: '{error.cell:.40}' in column '{field.name}' is not {error.expected}."
        ) from None


def _each(column: pa.Array, change: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """The column with a function applied to each value that is not null."""
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    return pa.array([None if value is None else change(value) for value in column.to_pylist()], kind)


class _CellError(Exception):
    def __init__(self, cell: str, expected: str) -> None:
        super().__init__(cell)
        self.cell, self.expected = cell, expected


def _bytes(cell: str) -> bytes:
    try:
        return base64.b64decode(cell, validate=True)
    except (binascii.Error, ValueError):
        raise _CellError(cell, "base64") from None


def _strings(cell: str) -> list[str | None]:
    try:
        value = json.loads(cell)
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(entry is None or isinstance(entry, str) for entry in value):
        raise _CellError(cell, 'a JSON list of words such as ["crowd", "difficult"]')
    return value
