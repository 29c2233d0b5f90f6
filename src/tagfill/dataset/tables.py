"""The two tables of a dataset, images and annotations: their columns, and their files.

An annotation is one row:

| column | meaning |
|---|---|
| image | path below the image root, also the image's identity |
| label | class name |
| present | true: verified present; false: verified absent; null: annotated, but the annotator cannot tell |
| kind | what was drawn: `image` (nothing), `point`, `box` or `mask` |
| x y w h | relative to the image; point: x, y; box and mask: center and size |
| rle, rle_height, rle_width | a mask's COCO run lengths and the size of the raster that they belong to |
| flags | crowd, difficult, group, observed… |
| source | the annotator, importer or protocol that the row comes from |
| time | when it was made, in UTC |
| seconds | annotation time that it cost |

Both tables are Parquet or CSV files and are streamed in batches. A file may omit columns that may be empty, order its
columns freely, and dictionary-encode its text. It may not have columns that the schema does not have, nor columns of
another type: a label that was stored as a number has lost its leading zeros, and an integer `present` does not say
what -1 means.

CSV files hold the same rows without loss. Text is quoted and an empty cell without quotes is null, so that "007", "",
"a, b" and null stay distinct. Times are ISO 8601 with a zone, flags are a JSON list (`["crowd", "difficult"]`), run
lengths are base64.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.errors import DatasetError, unknown_name
from tagfill.io import FORMULA

KINDS = ("image", "point", "box", "mask")
REQUIRED = frozenset({"image", "label", "present", "split"})  # columns of either table that a file must have

SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("present", pa.bool_()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("x", pa.float32()),
        pa.field("y", pa.float32()),
        pa.field("w", pa.float32()),
        pa.field("h", pa.float32()),
        pa.field("rle", pa.binary()),
        pa.field("rle_height", pa.int32()),
        pa.field("rle_width", pa.int32()),
        pa.field("flags", pa.list_(pa.string())),
        pa.field("source", pa.string()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("seconds", pa.float32()),
    ]
)

IMAGES_SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
    ]
)

FILE_TYPES = ("parquet", "csv")
BATCH_ROWS = 1 << 18
CODED = ("image", "label", "kind", "source")  # repetitive text, read from Parquet files as dictionaries

CROWD = "crowd"  # a location of many objects at once
OBSERVED = "observed"  # a validation row that a protocol would have kept, had it drawn from the validation split

_SPOOL_BYTES = 32 << 20
_CSV_BLOCK = 1 << 24  # bytes; a row must fit into one


# Tables in memory


def table(columns: Mapping[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Build a table from some columns of `schema`; the others are null, and `kind` is `image`.

    >>> table({"image": ["a.jpg"], "label": ["cat"], "present": [True]}).num_rows
    1
    """
    size = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None and field.name == "kind":
            values = pa.array(["image"], pa.string()).take(pa.array(np.zeros(size, dtype=np.int64)))
        if values is None:
            arrays.append(pa.nulls(size, field.type))
        elif isinstance(values, pa.Array | pa.ChunkedArray):
            arrays.append(values.cast(field.type))
        else:
            arrays.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def from_records(records: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Build a table from one mapping per row, for tables that fit into memory twice.

    Raises:
        DatasetError: if a record has a column that `schema` does not have, or lacks a required one.

    >>> from_records([{"image": "a.jpg", "label": "cat", "presnt": True}])
    Traceback (most recent call last):
    tagfill.errors.TagfillError: There is no column 'presnt'; did you mean 'present'? Known: ...
    """
    known = set(schema.names)
    for number, record in enumerate(records):
        if unknown := record.keys() - known:
            raise unknown_name("column", min(unknown), schema.names)
        if lacking := REQUIRED.intersection(known).difference(record):
            raise DatasetError(f"Record {number} has no '{min(lacking)}', which every record needs.")
    defaults = {"kind": "image"}
    return table({name: [row.get(name, defaults.get(name)) for row in records] for name in schema.names}, schema)


def has_flag(flags: pa.ListArray, flag: str) -> NDArray[np.bool_]:
    """Which rows have a flag.

    >>> has_flag(pa.array([None, ["group", "crowd"], []], pa.list_(pa.string())), CROWD).tolist()
    [False, True, False]
    """
    found = np.zeros(len(flags), dtype=bool)
    equal = pc.fill_null(pc.equal(pc.list_flatten(flags), flag), False).to_numpy(zero_copy_only=False)
    found[pc.list_parent_indices(flags).to_numpy()[equal]] = True
    return found


class RowSpool:
    """Collects annotation rows: in memory while they are few, beyond that in a temporary Parquet file.

    Args:
        in_memory: bytes of rows that are held in memory.
    """

    def __init__(self, in_memory: int = _SPOOL_BYTES) -> None:
        self._in_memory = in_memory
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._path: _TemporaryPath | None = None
        self._file: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows; their text may be dictionary-encoded."""
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
        """All added rows in order, as a table or as the path of a file."""
        if self._file is None:
            return pa.concat_tables([SCHEMA.empty_table(), *self._held])
        self._file.close()
        assert self._path is not None
        return self._path

    def _begin_file(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="tagfill-rows-", suffix=".parquet", delete=False) as file:
            self._path = _TemporaryPath(file.name)
        weakref.finalize(self._path, Path(file.name).unlink, missing_ok=True)
        self._file = pq.ParquetWriter(file.name, SCHEMA, compression="zstd")
        self._file.write_table(pa.concat_tables(self._held))
        self._held = []


class _TemporaryPath(type(Path())):  # type: ignore[misc]
    """The path of a temporary file; the file is deleted with the last reference to this object."""


# Files


def find_table(folder: Path, name: str) -> Path:
    """The Parquet file of a table, or its CSV twin if there is none."""
    for file_type in FILE_TYPES:
        if (path := folder / f"{name}.{file_type}").is_file():
            return path
    raise DatasetError(f"{folder} has neither {name}.parquet nor {name}.csv; it is not a complete dataset folder.")


def column_names(path: Path) -> list[str]:
    """The columns that a file has."""
    if path.suffix == ".csv":
        return _csv_header(path)
    try:
        names: list[str] = pq.read_schema(path).names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return names


def check_table(path: Path, schema: pa.Schema) -> None:
    """Raise if a file cannot be read or has the wrong columns; its rows are not read."""
    if path.suffix == ".csv":
        check_columns(_csv_header(path), schema, str(path))
        return
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    check_columns(found.names, schema, str(path))
    empty = [pa.array([], field.type) for field in found]
    to_schema(pa.RecordBatch.from_arrays(empty, schema=found), schema, str(path))


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a whole file."""
    check_table(path, schema)
    batches = [decode_dictionaries(batch, schema) for batch in stream_table(path, schema, coded=())]
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    del batches
    pa.default_memory_pool().release_unused()
    return table


def stream_table(
    path: Path, schema: pa.Schema, columns: Collection[str] | None = None, *, coded: Collection[str] = CODED
) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a file in batches.

    Args:
        path: a Parquet or CSV file.
        schema: column types.
        columns: those to read; all by default.
        coded: text columns that are dictionary-encoded when read from Parquet.
    """
    wanted = select_fields(schema, columns)
    if path.suffix == ".csv":
        batches = _read_csv(path, schema, wanted.names)
    else:
        batches = _read_parquet(path, schema, wanted.names, coded)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        if batch is None:
            return
        yield to_schema(batch, wanted, str(path))


def table_writer(file_type: str) -> Callable[[IO[bytes], Iterable[pa.RecordBatch], pa.Schema], None]:
    """The function that writes batches to a file of this type: file, batches, schema."""
    if file_type not in FILE_TYPES:
        raise unknown_name("file type of tables", file_type, FILE_TYPES)
    return _write_csv if file_type == "csv" else _write_parquet


# Columns and types


def select_fields(schema: pa.Schema, columns: Collection[str] | None) -> pa.Schema:
    """The fields of some columns, in the order of the schema."""
    return schema if columns is None else pa.schema([field for field in schema if field.name in columns])


def present_columns(wanted: Collection[str], found: Collection[str], schema: pa.Schema) -> list[str]:
    """The wanted columns that a table has; if it has none, its first one, so that its rows can be counted."""
    return [name for name in wanted if name in found] or schema.names[:1]


def decode_dictionaries(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly this schema, with dictionary-encoded text decoded."""
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def spreadsheet_safe(rows: pa.Table) -> pa.Table:
    """The rows with an apostrophe before each text that a spreadsheet would run as a formula.

    >>> spreadsheet_safe(pa.table({"label": ["=1+1", "cup"], "n": [1, 2]}))["label"].to_pylist()
    ["'=1+1", 'cup']
    """
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            rows = rows.set_column(place, field, pc.replace_substring_regex(rows[place], FORMULA, r"'\1"))
    return rows


def check_columns(found: Collection[str], schema: pa.Schema, where: str) -> None:
    """Raise if columns are missing, unknown or repeated."""
    names = list(found)
    missing = [name for name in schema.names if name in REQUIRED and name not in names]
    unknown = [name for name in names if name not in schema.names]
    if missing or unknown:
        faults = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(unknown)}"] * bool(unknown)
        raise DatasetError(
            f"{where} has the wrong columns: it {' and '.join(faults)}; expected are {', '.join(schema.names)}."
        )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DatasetError(f"{where} has two columns '{repeated[0]}'; drop one of them.")


def to_schema(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """Bring a batch into the columns and types of `schema`; dictionary-encoded text stays so.

    Missing columns become null, and `kind` becomes `image`.

    Raises:
        DatasetError: if a column has another type.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            arrays.append(_default_column(field, batch.num_rows))
            continue
        column = batch.column(position)
        if not _is_readable_as(column.type, field.type):
            raise DatasetError(
                f"{where}: column '{field.name}' has type {column.type}, but {field.type} is expected; convert it."
            )
        if not _is_coded(column.type, field.type):
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise DatasetError(f"{where}: column '{field.name}': {first_line(error)}.") from None
        arrays.append(column)
    fields = [field.with_type(column.type) for field, column in zip(schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _default_column(field: pa.Field, size: int) -> pa.Array:
    if field.name == "kind":
        return pa.DictionaryArray.from_arrays(pa.array([0] * size, pa.int32()), pa.array(["image"]))
    return pa.nulls(size, field.type)


def _is_coded(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column is the wanted text, dictionary-encoded."""
    return bool(pa.types.is_string(wanted) and pa.types.is_dictionary(found) and found.value_type.equals(wanted))


def _is_readable_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of type `found` can be read as `wanted` without guessing."""
    if pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found):
        found = found.value_type
    families = (
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
        (pa.types.is_boolean,),
        (pa.types.is_floating,),
        (pa.types.is_integer,),
        (pa.types.is_timestamp,),
    )
    if pa.types.is_floating(wanted) and pa.types.is_integer(found):
        return True
    if pa.types.is_list(wanted):
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        return listed and _is_readable_as(found.value_type, wanted.value_type)
    return any(
        any(is_type(found) for is_type in family) for family in families if any(is_type(wanted) for is_type in family)
    )


def first_line(error: Exception) -> str:
    """The first line of another library's message, without its full stop."""
    return (str(error).splitlines() or ["unknown error"])[0].rstrip(". ")


def _unreadable(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{path} is damaged or not a table: {first_line(error)}.")


# Parquet


def _read_parquet(
    path: Path, schema: pa.Schema, columns: list[str], coded: Collection[str]
) -> Iterator[pa.RecordBatch]:
    names = pq.read_schema(path).names
    check_columns(names, schema, str(path))
    present = present_columns(columns, names, schema)
    with pq.ParquetFile(path, read_dictionary=[name for name in present if name in coded]) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, columns=present)


def _write_parquet(file: IO[bytes], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    with pq.ParquetWriter(file, schema, compression="zstd") as parquet:
        for batch in batches:
            parquet.write_batch(decode_dictionaries(batch, schema))


# CSV


def _csv_header(path: Path) -> list[str]:
    """The names of the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), None)
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DatasetError(f"{path} cannot be read as CSV in UTF-8: {error}.") from None
    if not names:
        raise DatasetError(f"{path} is empty; the first line of a CSV table names its columns.")
    return names


def _read_csv(path: Path, schema: pa.Schema, columns: list[str]) -> Iterator[pa.RecordBatch]:
    names = _csv_header(path)
    check_columns(names, schema, str(path))
    columns = present_columns(columns, names, schema)
    as_text = pa.schema([field.with_type(_text_type(field.type)) for field in schema])
    reader = pacsv.open_csv(
        path,
        read_options=pacsv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK),  # so that errors name the row
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


def _write_csv(file: IO[bytes], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
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
    """Apply a function to each value that is not null."""
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
