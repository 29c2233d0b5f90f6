"""Suggestions: (image, label) pairs to check, most important first, and how good they are where the truth is known.

| column | meaning |
|---|---|
| image, label | the pair |
| kind | `missing`: not annotated and probably present; `wrong`: an annotation that is probably wrong |
| annotated | current annotation: present, absent, or null for unknown |
| probability | calibrated probability that the image shows the label |
| value | expected value of checking the pair; larger is better |

A file is Parquet or CSV, depending on its extension. Parquet also stores the origin of the suggestions: the run that
made them and the identity of its labels.

Files of `tagfill predict` share the columns image, label and probability, and have `present` instead of the others.
Read as suggestions, they hold the pairs that are not annotated yet, most probable first.
"""

from __future__ import annotations

import io
import json
import os
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
from tagfill.dataset.tables import spreadsheet_safe
from tagfill.deprecation import renamed
from tagfill.errors import TagfillError
from tagfill.io import atomic_write, nan_to_none, plain_cell
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
MIN_PROBABILITY = 0.1  # of predictions that are worth a question
CUTOFFS = (10, 100, 1_000, 10_000)  # of which the precision is measured
_BLOCK = 4096  # images at a time


@dataclass(frozen=True)
class Suggestions:
    """A table of suggestions and their origin.

    Attributes:
        table: rows in `SCHEMA`, most important first.
        origin: the run, the dataset and its identities when the suggestions were made; empty if unknown.

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
        """No suggestions."""
        return cls(SCHEMA.empty_table())

    @staticmethod
    def check_path(path: Path, *, spreadsheet: bool = False) -> None:
        """Raise if suggestions cannot be written to a file of this name."""
        if _file_type(path) != "csv" and spreadsheet:
            raise TagfillError(f"--spreadsheet is for CSV files, and {path} is none; leave it out.")

    def save(self, path: Path, *, spreadsheet: bool = False) -> None:
        """Write a Parquet or CSV file, atomically.

        Args:
            path: ends in .parquet or .csv.
            spreadsheet: in a CSV file, write an apostrophe before names that a spreadsheet would run as formulas;
                `read` with the dataset undoes it.
        """
        self.check_path(path, spreadsheet=spreadsheet)
        with atomic_write(path) as file:
            if _file_type(path) == "csv":
                pa_csv.write_csv(spreadsheet_safe(self.table) if spreadsheet else self.table, file)
            else:
                metadata = {_ORIGIN: json.dumps(dict(self.origin), ensure_ascii=False).encode()}
                pq.write_table(self.table.replace_schema_metadata(metadata), file, compression="zstd")

    @classmethod
    def read(cls, path: Path, dataset: Dataset | None = None) -> Suggestions:
        """Read a file of `tagfill suggest` or `tagfill predict`, or one with at least image, label and probability.

        Args:
            path: a .parquet or .csv file.
            dataset: says which pairs of predictions are annotated already, and which names of a CSV file have an
                apostrophe for spreadsheets before them.
        """
        if not path.is_file():
            raise TagfillError(
                f"There is no file {path}; create it with 'tagfill suggest DATASET --run RUN --out FILE'."
            )
        try:
            table = _read_csv(path) if _file_type(path) == "csv" else pq.read_table(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TagfillError(f"{path} is damaged or holds no suggestions: {str(error).splitlines()[0]}.") from None
        origin = json.loads((table.schema.metadata or {}).get(_ORIGIN, b"{}"))
        if "score" in table.column_names and "probability" not in table.column_names:  # predictions of version 0.1
            table = table.rename_columns({"score": "probability"})
        predictions = "present" in table.column_names and "kind" not in table.column_names
        table = _conform(table, path)
        if dataset is not None and _file_type(path) == "csv":
            table = _without_apostrophes(table, dataset)
        return cls(_open_predictions(table, dataset) if predictions else table, origin)

    def check(self, dataset: Dataset) -> None:
        """Raise if an image or label of the suggestions is not in the dataset."""
        for column, known in (("image", dataset.images["image"]), ("label", pa.array(dataset.classes, pa.string()))):
            found = pc.is_in(self.table[column], value_set=pa.chunked_array([known]) if column == "label" else known)
            if not pc.all(found).as_py() and len(self):
                row = found.to_pylist().index(False)
                raise TagfillError(
                    f"Suggestion {row} is about the {column} '{self.table[column][row].as_py()}', which dataset "
                    f"{dataset.name} does not have; make new suggestions for this dataset."
                )


def _file_type(path: Path) -> str:
    file_type = path.suffix.removeprefix(".").lower()
    if file_type not in ("parquet", "csv"):
        raise TagfillError(f"A file of suggestions is a .parquet or .csv file; {path} is neither.")
    return file_type


def _read_csv(path: Path) -> pa.Table:
    types = {field.name: field.type for field in SCHEMA}
    options = pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    content = path.read_bytes()
    if not content.strip():
        raise ValueError("the file is empty")
    return pa_csv.read_csv(io.BytesIO(content), convert_options=options)


def _conform(table: pa.Table, path: Path) -> pa.Table:
    """The columns of `SCHEMA` in its order, with defaults for missing optional ones."""
    if missing := [name for name in ("image", "label", "probability") if name not in table.column_names]:
        raise TagfillError(f"{path} has no column '{missing[0]}', which a file of suggestions needs.")
    size = table.num_rows
    defaults = {
        "kind": pa.array([MISSING] * size, pa.string()),
        "annotated": pa.nulls(size, pa.bool_()),
        "value": table["probability"],
    }
    columns = [table[name] if name in table.column_names else defaults[name] for name in SCHEMA.names]
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
            raise TagfillError(f"{path}: the column {name} has empty cells; fill them or remove these rows.")
    if unknown := sorted(set(pc.unique(conformed["kind"]).to_pylist()) - set(KINDS)):
        raise TagfillError(f"{path}: the kind of a suggestion is '{unknown[0]}'; it must be {' or '.join(KINDS)}.")
    probability = conformed["probability"]
    if size and not pc.all(pc.and_(pc.greater_equal(probability, 0), pc.less_equal(probability, 1))).as_py():
        raise TagfillError(f"{path}: a probability is not between 0 and 1.")
    return conformed


def _without_apostrophes(table: pa.Table, dataset: Dataset) -> pa.Table:
    """The table with the names of the dataset where apostrophes protect them from spreadsheets."""
    for place, known in enumerate((dataset.names(), dataset.classes)):
        coded = table[place].combine_chunks().dictionary_encode()
        names = coded.dictionary.to_pylist()
        if changed := {name: plain_cell(name) for name in names if plain_cell(name) != name}:
            for name in changed.keys() & set(known):
                del changed[name]
            values = pa.array([changed.get(name, name) for name in names], pa.string())
            table = table.set_column(place, SCHEMA.field(place), values.take(coded.indices))
    return table


def _open_predictions(table: pa.Table, dataset: Dataset | None) -> pa.Table:
    """The likely pairs of predictions that are not annotated, most probable first.

    An image that was predicted by its path gets the name that it has in the dataset.
    """
    table = table.filter(pc.greater_equal(table["probability"], MIN_PROBABILITY))
    if dataset is not None:
        if isinstance(dataset.root, Path):
            root = f"{dataset.root.absolute()}{os.sep}"
            coded = table["image"].combine_chunks().dictionary_encode()
            names = [
                os.path.normpath(Path(name).absolute()).removeprefix(root) for name in coded.dictionary.to_pylist()
            ]
            known = set(dataset.names())
            names = [
                name if name in known else old for name, old in zip(names, coded.dictionary.to_pylist(), strict=True)
            ]
            table = table.set_column(0, SCHEMA.field("image"), pa.array(names, pa.string()).take(coded.indices))
        Suggestions(table).check(dataset)
        table = table.filter(pa.array(~_annotated(table, dataset)))
    return table.take(pc.sort_indices(table, [("probability", "descending"), ("image", "ascending")]))


def _annotated(table: pa.Table, dataset: Dataset) -> NDArray[np.bool_]:
    """Which pairs of a table have an annotation."""
    row = pc.index_in(table["image"], value_set=dataset.images["image"]).to_numpy().astype(np.int64)
    label = pc.index_in(table["label"], value_set=pa.array(dataset.classes, pa.string())).to_numpy().astype(np.int64)
    return dataset.labels().has_entries(row, label)


@dataclass(frozen=True)
class SuggestionQuality:
    """Suggestions compared with the complete labels.

    Attributes:
        precision: k → precision of the first k missing labels, for several k.
        wrong_precision: the same for annotations that are probably wrong.
        recovered: share of all missing labels that were suggested; NaN if none is missing.
        per_hour: labels found in the first hour of a review in the order of the file.
        per_hour_random: labels found on average in an hour of checking unknown pairs in random order; NaN if nothing
            is unknown.
    """

    precision: dict[int, float]
    wrong_precision: dict[int, float]
    recovered: float
    per_hour: float
    per_hour_random: float

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "precision_at": {str(k): value for k, value in self.precision.items()},
            "wrong_precision_at": {str(k): value for k, value in self.wrong_precision.items()},
            "recovered": nan_to_none(self.recovered),
            "labels_per_hour": self.per_hour,
            "labels_per_hour_in_random_order": nan_to_none(self.per_hour_random),
        }


def measure(suggestions: Suggestions, dataset: Dataset, split: str, seconds: float) -> SuggestionQuality | None:
    """Compare suggestions with the complete labels that a dataset was simulated from; None if there are none.

    Args:
        suggestions: in the order of the review.
        dataset: the simulated dataset.
        split: split of the suggested images.
        seconds: time that a reviewer needs per suggestion.
    """
    if dataset.truth is None:
        return None
    truth = Dataset.open(dataset.truth)
    if truth.names() != dataset.names() or truth.classes != dataset.classes:
        return None
    complete, known = truth.labels(), dataset.labels()
    rows = dataset.split(split)
    unknown = missing = 0
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        unlabeled = ~known.is_annotated(block) & (complete.rows(block) >= 0)
        unknown += int(unlabeled.sum())
        missing += int((unlabeled & (complete.rows(block) == 1)).sum())
    truths = _true_labels(suggestions, dataset, complete)
    kinds = np.array(suggestions.table["kind"].to_pylist(), dtype=object)
    annotated = np.array(suggestions.table["annotated"].to_pylist(), dtype=object)
    found = truths[(kinds == MISSING) & (truths >= 0)] == 1
    doubted = (kinds == WRONG) & (truths >= 0)
    wrong = (truths[doubted] == 1) != annotated[doubted].astype(bool)
    hour = int(3600 / seconds)
    return SuggestionQuality(
        _precision_at(found),
        _precision_at(wrong),
        float(found.sum() / missing) if missing else float("nan"),
        float(found[:hour].sum()),
        hour * missing / unknown if unknown else float("nan"),
    )


def _true_labels(suggestions: Suggestions, dataset: Dataset, complete: LabelMatrix) -> NDArray[np.int8]:
    """The true label of each suggestion: 1, 0, or -1 if unknown."""
    row = pc.index_in(suggestions.table["image"], value_set=dataset.images["image"]).to_numpy()
    position = {name: number for number, name in enumerate(dataset.classes)}
    label = np.array([position[name] for name in suggestions.table["label"].to_pylist()], dtype=np.int64)
    truths = np.full(len(row), -1, dtype=np.int8)
    for start in range(0, len(row), _BLOCK):
        part = slice(start, start + _BLOCK)
        truths[part] = complete.rows(row[part].astype(np.int64))[np.arange(len(row[part])), label[part]]
    return truths


def _precision_at(correct: NDArray[np.bool_]) -> dict[int, float]:
    sizes = sorted({k for k in CUTOFFS if k <= len(correct)} | ({len(correct)} if len(correct) else set()))
    return {k: float(correct[:k].mean()) for k in sizes}


__getattr__ = renamed(__name__, {"Measured": "SuggestionQuality"})
