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


How right suggestions are, where somebody knows: precision of the first k, and labels recovered an hour.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.io import atomic_write, nan_to_none
from tagfill.labels import LabelMatrix

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
        with atomic_write(path) as file:
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


FIRST = (10, 100, 1_000, 10_000)
_IMAGES_AT_ONCE = 4096


@dataclass(frozen=True)
class Measured:
    """What the truth says of suggestions.

    Attributes:
        precision: of the first k likely missing labels, the share that is there; k → share, as far as there are k.
        wrong_precision: the same for annotations that are likely wrong.
        recovered: share of all missing labels that are among the suggestions; NaN if none is missing.
        per_hour: labels found in the first hour of review in the order of the file.
        per_hour_random: labels that an hour of looking at unknown pairs in random order is expected to find; NaN if
            none is unknown.
    """

    precision: dict[int, float]
    wrong_precision: dict[int, float]
    recovered: float
    per_hour: float
    per_hour_random: float

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "precision_at": {str(k): value for k, value in self.precision.items()},
            "wrong_precision_at": {str(k): value for k, value in self.wrong_precision.items()},
            "recovered": nan_to_none(self.recovered),
            "labels_per_hour": self.per_hour,
            "labels_per_hour_in_random_order": nan_to_none(self.per_hour_random),
        }


def measure(suggestions: Suggestions, dataset: Dataset, split: str, seconds: float) -> Measured | None:
    """Compare suggestions with the complete labels that a dataset was simulated from; None if there are none.

    Args:
        suggestions: in the order in which they would be looked at.
        dataset: that they are about.
        split: whose images they are about.
        seconds: that a reviewer takes for each.
    """
    if dataset.truth is None:
        return None
    truth = Dataset.open(dataset.truth)
    if truth.names() != dataset.names() or truth.classes != dataset.classes:
        return None
    complete, known = truth.labels(), dataset.labels()
    rows = dataset.split(split)
    unknown = missing = 0
    for start in range(0, len(rows), _IMAGES_AT_ONCE):
        block = rows[start : start + _IMAGES_AT_ONCE]
        open_ones = ~known.looked_at(block) & (complete.rows(block) >= 0)
        unknown += int(open_ones.sum())
        missing += int((open_ones & (complete.rows(block) == 1)).sum())
    there = _truth_of(suggestions, dataset, complete)
    kinds = np.array(suggestions.table["kind"].to_pylist(), dtype=object)
    annotated = np.array(suggestions.table["annotated"].to_pylist(), dtype=object)
    found = there[(kinds == MISSING) & (there >= 0)] == 1
    doubted = (kinds == WRONG) & (there >= 0)
    wrong = (there[doubted] == 1) != annotated[doubted].astype(bool)
    hour = int(3600 / seconds)
    return Measured(
        _first(found),
        _first(wrong),
        float(found.sum() / missing) if missing else float("nan"),
        float(found[:hour].sum()),
        hour * missing / unknown if unknown else float("nan"),
    )


def _truth_of(suggestions: Suggestions, dataset: Dataset, complete: LabelMatrix) -> NDArray[np.int8]:
    """What is true of each suggestion: 1, 0, or -1 if nobody knows."""
    row = pc.index_in(suggestions.table["image"], value_set=dataset.images["image"]).to_numpy()
    position = {name: number for number, name in enumerate(dataset.classes)}
    label = np.array([position[name] for name in suggestions.table["label"].to_pylist()], dtype=np.int64)
    there = np.full(len(row), -1, dtype=np.int8)
    for start in range(0, len(row), _IMAGES_AT_ONCE):
        part = slice(start, start + _IMAGES_AT_ONCE)
        there[part] = complete.rows(row[part].astype(np.int64))[np.arange(len(row[part])), label[part]]
    return there


def _first(right: NDArray[np.bool_]) -> dict[int, float]:
    sizes = sorted({k for k in FIRST if k <= len(right)} | ({len(right)} if len(right) else set()))
    return {k: float(right[:k].mean()) for k in sizes}
