"""The two tables of a dataset folder, as Parquet or as CSV, streamed in batches of one schema.

A file may leave out columns that have a meaning when they are empty, keep its columns in any order, and code its text
as dictionaries. It may not have columns that the schema does not know, nor columns of another kind: a label that was
stored as a number has lost its zeros, and an integer `present` does not say what -1 means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.annotations import csv_tables
from tagfill.annotations.rows import REQUIRED
from tagfill.errors import DatasetError, unknown_name

BATCH_ROWS = 1 << 18
KINDS = ("parquet", "csv")
CODED = ("image", "label", "kind", "source")  # text of few distinct values, kept as dictionaries


def find(folder: Path, name: str) -> Path:
    """The Parquet file of a table, or its CSV twin where that is missing."""
    for kind in KINDS:
        if (path := folder / f"{name}.{kind}").is_file():
            return path
    raise DatasetError(f"{folder} has neither {name}.parquet nor {name}.csv; it is not a complete dataset folder.")


def check(path: Path, schema: pa.Schema) -> None:
    """Refuse a file that cannot be read or has the wrong columns, without reading its rows."""
    if path.suffix == ".csv":
        check_columns(csv_tables.header(path), schema, str(path))
        return
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    check_columns(found.names, schema, str(path))
    nothing = [pa.array([], field.type) for field in found]
    conform(pa.RecordBatch.from_arrays(nothing, schema=found), schema, str(path))


def stream(
    path: Path, schema: pa.Schema, columns: Collection[str] | None = None, *, coded: Collection[str] = CODED
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches, in the types of `schema`; `coded` columns of Parquet files are dictionaries."""
    wanted = part_of(schema, columns)
    csv = path.suffix == ".csv"
    batches = _from_csv(path, schema, wanted.names) if csv else _from_parquet(path, schema, wanted.names, coded)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        if batch is None:
            return
        yield conform(batch, wanted, str(path))


def read(path: Path, schema: pa.Schema) -> pa.Table:
    """A whole file as a table in `schema`."""
    check(path, schema)
    batches = [plain(batch, schema) for batch in stream(path, schema, coded=())]
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    del batches
    pa.default_memory_pool().release_unused()
    return table


def writer(kind: str) -> Callable[[IO[bytes], Iterable[pa.RecordBatch], pa.Schema], None]:
    """What writes a table as `kind`."""
    if kind not in KINDS:
        raise unknown_name("kind of table", kind, KINDS)
    return csv_tables.write if kind == "csv" else _write_parquet


def part_of(schema: pa.Schema, columns: Collection[str] | None) -> pa.Schema:
    """Some columns of a schema, in its order."""
    return schema if columns is None else pa.schema([field for field in schema if field.name in columns])


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly this schema, dictionaries decoded."""
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def check_columns(found: Collection[str], schema: pa.Schema, where: str) -> None:
    """Refuse missing, unknown and repeated columns."""
    names = list(found)
    missing = [name for name in schema.names if name in REQUIRED and name not in names]
    strange = [name for name in names if name not in schema.names]
    if missing or strange:
        faults = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(strange)}"] * bool(strange)
        raise DatasetError(
            f"{where} has the wrong columns: it {' and '.join(faults)}; expected are {', '.join(schema.names)}."
        )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DatasetError(f"{where} has two columns '{repeated[0]}'; drop one of them.")


def conform(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The batch with the columns of `schema` in its order and types; missing ones are empty, and `kind` is `image`."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            arrays.append(_default(field, batch.num_rows))
            continue
        column = batch.column(position)
        if not _is_a(column.type, field.type):
            raise DatasetError(
                f"{where}: column '{field.name}' holds {column.type}, and {field.type} is expected; "
                "convert it, so that nothing has to be guessed."
            )
        if not _coded(column.type, field.type):
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise DatasetError(f"{where}: column '{field.name}': {first_line(error)}.") from None
        arrays.append(column)
    fields = [field.with_type(column.type) for field, column in zip(schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def first_line(error: Exception) -> str:
    """The first line of another library's message, without its full stop."""
    return (str(error).splitlines() or ["unknown error"])[0].rstrip(". ")


def _from_parquet(
    path: Path, schema: pa.Schema, columns: list[str], coded: Collection[str]
) -> Iterator[pa.RecordBatch]:
    names = pq.read_schema(path).names
    check_columns(names, schema, str(path))
    here = [name for name in columns if name in names]
    with pq.ParquetFile(path, read_dictionary=[name for name in here if name in coded]) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, columns=here)


def _from_csv(path: Path, schema: pa.Schema, columns: list[str]) -> Iterator[pa.RecordBatch]:
    names = csv_tables.header(path)
    check_columns(names, schema, str(path))
    return csv_tables.stream(path, schema, [name for name in columns if name in names])


def _write_parquet(file: IO[bytes], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    with pq.ParquetWriter(file, schema, compression="zstd") as parquet:
        for batch in batches:
            parquet.write_batch(plain(batch, schema))


def _unreadable(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{path} is damaged or not a table: {first_line(error)}.")


def _default(field: pa.Field, size: int) -> pa.Array:
    if field.name == "kind":
        return pa.DictionaryArray.from_arrays(pa.array([0] * size, pa.int32()), pa.array(["image"]))
    return pa.nulls(size, field.type)


def _coded(found: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(pa.types.is_string(wanted) and pa.types.is_dictionary(found) and found.value_type.equals(wanted))


def _is_a(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of one type can be read as another without guessing."""
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
        return listed and _is_a(found.value_type, wanted.value_type)
    return any(any(is_a(found) for is_a in family) for family in families if any(is_a(wanted) for is_a in family))
