"""One file of all parts, as Parquet, CSV or JSON lines, a part at a time.

Parquet and CSV have a row for each image and label, see `tagfill.inference.parts`. JSON lines have one line an image:

    {"image": "photos/1.jpg", "present": ["bell"], "scores": {"bell": 0.93, "anchor": 0.04}}
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tagfill.errors import TagfillError
from tagfill.files import replacing
from tagfill.inference.parts import SCHEMA

_PLAIN = pa.schema([("image", pa.string()), ("label", pa.string()), ("score", pa.float32()), ("present", pa.bool_())])


def check_ending(out: Path) -> None:
    """Refuse a file whose ending names no format."""
    if out.suffix not in _WRITERS:
        raise TagfillError(f"{out} ends in none of {', '.join(_WRITERS)}; its ending decides what is written.")


def join(tables: Iterable[pa.Table], out: Path) -> None:
    """Write all rows into one file, whole or not at all; its ending decides the format."""
    with replacing(out) as file:
        _WRITERS[out.suffix](tables, file)


def lines(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """What is said about each image; the rows of an image lie together."""
    images = rows["image"].combine_chunks()
    columns = [rows[name].to_pylist() for name in ("label", "score", "present")]
    names, numbers = images.dictionary.to_pylist(), images.indices.to_pylist()
    start = 0
    while start < len(numbers):
        end = start
        while end < len(numbers) and numbers[end] == numbers[start]:
            end += 1
        labels, scores, present = (column[start:end] for column in columns)
        yield {
            "image": names[numbers[start]],
            "present": [label for label, there in zip(labels, present, strict=True) if there],
            "scores": dict(zip(labels, scores, strict=True)),
        }
        start = end


def _write_parquet(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for rows in tables:
            writer.write_table(rows)


def _write_csv(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    with pacsv.CSVWriter(file, _PLAIN, write_options=pacsv.WriteOptions(quoting_style="needed")) as writer:
        for rows in tables:
            for batch in rows.to_batches(max_chunksize=65536):
                writer.write_batch(batch.cast(_PLAIN))


def _write_json_lines(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
    for rows in tables:
        for line in lines(rows):
            text.write(json.dumps(line, ensure_ascii=False) + "\n")
    text.detach()


_WRITERS: dict[str, Callable[[Iterable[pa.Table], IO[bytes]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
}
