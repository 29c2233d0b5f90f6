"""The table of a result, `filled.csv`: one row per photo with its tags, what was added, and how probable that is.

    image,tags,added,probability
    a.jpg,cat|dog,person,0.940

It looks like the table that the tags came from: the column of photos keeps its name, and tags that shared a cell there
are separated in the same way here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tagfill.dataset import Dataset
from tagfill.formats.tag_columns import JSON, NONE
from tagfill.formats.tag_columns import SEPARATORS as MARKS
from tagfill.io import atomic_write, plain_cell, spreadsheet_cell
from tagfill.labels import POSITIVE

IMAGE = "image"
COLUMNS = ("tags", "added", "probability")  # behind that of the photos
SEPARATORS = "|;,"  # between the tags of a cell, if the tags came without one: the first that no tag contains


class TableLayout(BaseModel):
    """How `filled.csv` is written.

    Attributes:
        image_column: name of the column of photos.
        separator: between the tags of a cell; `json` for lists.
        delimiter: between cells.
        spreadsheet: whether an apostrophe is before cells that a spreadsheet would run as formulas.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_column: str = IMAGE
    separator: str = SEPARATORS[0]
    delimiter: str = ","
    spreadsheet: bool = False

    @classmethod
    def choose(cls, classes: Sequence[str], like: Mapping[str, Any] | None = None) -> TableLayout:
        """The layout of a table of tags, where it can be kept.

        Args:
            classes: the tags.
            like: what was found in the table, see `tagfill.formats.tags.TagTable.options`.

        >>> TableLayout.choose(["cat", "dog"], {"image_column": "file", "separator": ";", "delimiter": ","})
        TableLayout(image_column='file', separator=';', delimiter=',', spreadsheet=False)
        >>> TableLayout.choose(["cat", "dog|wolf"])
        TableLayout(image_column='image', separator=';', delimiter=',', spreadsheet=False)
        """
        found = like or {}
        name, delimiter = found.get("image_column", IMAGE), found.get("delimiter")
        separator = found.get("separator", NONE)
        if all(mark in MARKS for mark in separator):
            separator = separator[:1]  # each of several marks separates
        if not _separates(separator, classes):
            separator = next((mark for mark in SEPARATORS if _separates(mark, classes)), JSON)
        return cls(
            image_column=IMAGE if name in COLUMNS else name,
            separator=separator,
            delimiter=delimiter if delimiter in (",", ";") else ",",
        )


def _separates(separator: str, classes: Sequence[str]) -> bool:
    """Whether a separator can be told from tags and numbers."""
    if separator == JSON:
        return True
    plain = separator != NONE and not any(character in '0123456789."\r\n' for character in separator)
    return plain and not any(separator in name for name in classes)


def write_filled(path: Path, known: Dataset, added: pa.Table, layout: TableLayout) -> None:
    """Write one row per photo.

    Args:
        path: of the file.
        known: given tags and decisions.
        added: image, label and probability of each added tag, most probable first.
        layout: names and separators.
    """
    more: dict[str, list[tuple[str, float]]] = {}
    for row in added.to_pylist():
        more.setdefault(row["image"], []).append((row["label"], row["probability"]))
    names, protect = known.names(), spreadsheet_cell if layout.spreadsheet else str
    with atomic_write(path) as file:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=layout.delimiter, lineterminator="\n")
        writer.writerow(map(protect, [layout.image_column, *COLUMNS]))
        for block, values in known.labels().blocks():
            for name, row in zip(names[block], values, strict=True):
                tags = [known.classes[code] for code in np.flatnonzero(row == POSITIVE)]
                labels = [label for label, _ in more.get(name, [])]
                probabilities = [round(p, 3) for _, p in more.get(name, [])]
                cells = [name, *(_join(cell, layout.separator) for cell in (tags, labels, probabilities))]
                writer.writerow(map(protect, cells))
            file.write(text.getvalue().encode())
            text.seek(0)
            text.truncate()


def read_filled(path: Path, layout: TableLayout) -> pa.Table:
    """Read what `write_filled` wrote, with the column of photos as `image`, and cells as lists."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter=layout.delimiter))[1:]
    if layout.spreadsheet:
        rows = [[plain_cell(cell) for cell in row] for row in rows]
    lists = [[_split(row[at], layout.separator) for row in rows] for at in (1, 2, 3)]
    return pa.table(
        {
            IMAGE: pa.array([row[0] for row in rows], pa.string()),
            "tags": pa.array(lists[0], pa.list_(pa.string())),
            "added": pa.array(lists[1], pa.list_(pa.string())),
            "probability": pa.array([[float(p) for p in cell] for cell in lists[2]], pa.list_(pa.float64())),
        }
    )


def _join(values: Sequence[str] | Sequence[float], separator: str) -> str:
    if separator == JSON:
        return json.dumps(list(values), ensure_ascii=False) if values else ""
    return separator.join(value if isinstance(value, str) else f"{value:.3f}" for value in values)


def _split(cell: str, separator: str) -> list[Any]:
    if not cell:
        return []
    return list(json.loads(cell)) if separator == JSON else cell.split(separator)
