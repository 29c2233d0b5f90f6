"""Suggestions: (image, label) pairs worth a look, in the order in which to look at them.

| column | meaning |
|---|---|
| image, label | the pair |
| kind | `missing`: nobody looked yet and it is probably there; `wrong`: an annotation that probably is not right |
| annotated | what the rows say now: present, absent, or null: unknown |
| probability | that the image shows the label, calibrated |
| value | what checking it is expected to be worth; larger first |

A file is Parquet or CSV by its ending. Parquet also carries where the suggestions come from (`origin`): the run that
made them and the identity of the labels that it saw.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.files import replacing

MISSING, WRONG = "missing", "wrong"
KINDS = (MISSING, WRONG)
SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("annotated", pa.bool_()),
        pa.field("probability", pa.float32(), nullable=False),
        pa.field("value", pa.float32(), nullable=False),
    ]
)
_ORIGIN = b"tagfill.origin"


@dataclass(frozen=True)
class Suggestions:
    """A table of suggestions and where it comes from.

    Attributes:
        table: in `SCHEMA`, first what to look at first.
        origin: the run, the dataset and its identities, as `tagfill suggest` knew them; empty if unknown.

    Example:
        >>> table = pa.Table.from_pylist(
        ...     [{"image": "a.jpg", "label": "cup", "kind": "missing", "probability": 0.9, "value": 1.0}], schema=SCHEMA
        ... )
        >>> len(Suggestions(table))
        1
    """

    table: pa.Table
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @classmethod
    def empty(cls) -> Suggestions:
        """No suggestion at all."""
        return cls(SCHEMA.empty_table())

    def save(self, path: Path) -> None:
        """Write a Parquet or CSV file, whole or not at all."""
        kind = _kind(path)
        with replacing(path) as file:
            if kind == "csv":
                pa_csv.write_csv(self.table, file)
            else:
                metadata = {_ORIGIN: json.dumps(dict(self.origin), ensure_ascii=False).encode()}
                pq.write_table(self.table.replace_schema_metadata(metadata), file, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> Suggestions:
        """Open what `tagfill suggest` wrote, or a CSV file with at least image, label and probability."""
        if not path.is_file():
            raise TagfillError(
                f"There is no file {path}; make suggestions with 'tagfill suggest RUN DATASET --out FILE'."
            )
        try:
            table = _read_csv(path) if _kind(path) == "csv" else pq.read_table(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TagfillError(f"{path} is damaged or holds no suggestions: {str(error).splitlines()[0]}.") from None
        origin = json.loads((table.schema.metadata or {}).get(_ORIGIN, b"{}"))
        return cls(_conform(table, path), origin)

    def check(self, dataset: Dataset) -> None:
        """Refuse suggestions about images or labels that the dataset does not have."""
        for column, known in (("image", dataset.images["image"]), ("label", pa.array(dataset.classes, pa.string()))):
            found = pc.is_in(self.table[column], value_set=pa.chunked_array([known]) if column == "label" else known)
            if not pc.all(found).as_py() and len(self):
                row = found.to_pylist().index(False)
                raise TagfillError(
                    f"Suggestion {row} is about the {column} '{self.table[column][row].as_py()}', which dataset "
                    f"{dataset.name} does not have; make suggestions for this dataset anew."
                )


def _kind(path: Path) -> str:
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("parquet", "csv"):
        raise TagfillError(f"Suggestions are kept in a .parquet or .csv file, and {path} is neither.")
    return kind


def _read_csv(path: Path) -> pa.Table:
    types = {field.name: field.type for field in SCHEMA}
    options = pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    content = path.read_bytes()
    if not content.strip():
        raise ValueError("the file is empty")
    return pa_csv.read_csv(io.BytesIO(content), convert_options=options)


def _conform(table: pa.Table, path: Path) -> pa.Table:
    """The columns of `SCHEMA` in its order; what may be left out gets its usual value."""
    if absent := [name for name in ("image", "label", "probability") if name not in table.column_names]:
        raise TagfillError(f"{path} holds no suggestions: it lacks the column {absent[0]}.")
    size = table.num_rows
    usual = {
        "kind": pa.array([MISSING] * size, pa.string()),
        "annotated": pa.nulls(size, pa.bool_()),
        "value": table["probability"],
    }
    columns = [table[name] if name in table.column_names else usual[name] for name in SCHEMA.names]
    try:
        conformed = pa.table(
            [column.cast(kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )
    except pa.ArrowException as error:
        raise TagfillError(
            f"{path}: {str(error).splitlines()[0]}; the columns are {', '.join(SCHEMA.names)}."
        ) from None
    for name in ("image", "label", "kind", "probability"):
        if conformed[name].null_count:
            raise TagfillError(f"{path}: the column {name} has empty cells; fill them or drop these rows.")
    if strange := sorted(set(pc.unique(conformed["kind"]).to_pylist()) - set(KINDS)):
        raise TagfillError(f"{path}: a suggestion is of the kind '{strange[0]}'; known are {' and '.join(KINDS)}.")
    chance = conformed["probability"]
    if size and not pc.all(pc.and_(pc.greater_equal(chance, 0), pc.less_equal(chance, 1))).as_py():
        raise TagfillError(f"{path}: a probability is not between 0 and 1.")
    return conformed
