"""What every reader needs: a builder that turns rows into a dataset, and the question what unlisted labels are.

`DatasetBuilder` takes rows one at a time, as whole columns, or as the absent labels of an exhaustively labeled image.
Rows are buffered, turned into Arrow tables and spooled, so memory stays bounded for any number of rows.

Many formats list present labels only, or write 0 for both absent and unknown. A file does not say which of the two it
means, so the reader asks for `absent_means`; see `resolve_absent_means`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tagfill.dataset import IMAGES_SCHEMA, SCHEMA, Dataset, table
from tagfill.dataset.lookup import Lookup
from tagfill.dataset.tables import RowSpool
from tagfill.errors import DatasetError, one_of

AbsentMeans = Literal["unknown", "absent"]

_BUFFERED_ROWS = 1 << 14
_BUFFERED_ABSENCES = 1 << 18
_NAMED = 3  # names in a sentence


class DatasetBuilder:
    """Builds a dataset from the images and rows that a reader finds.

    Args:
        name: of the dataset.
        root: folder or URL of its images.
        classes: class names in order.
        source: value of the `source` column for rows that do not bring their own.

    Raises:
        DatasetError: a class name is empty, is not text, or occurs twice.
    """

    def __init__(self, name: str, root: Path | str, classes: Collection[str], source: str) -> None:
        self.classes = tuple(classes)
        for label in self.classes:
            if not _is_text(label):
                raise DatasetError(f"{name}: a class is called {label!a:.60}; class names must be text.")
        self._codes = {label: code for code, label in enumerate(self.classes)}
        if len(self._codes) < len(self.classes):
            repeated = next(label for label in self.classes if self.classes.count(label) > 1)
            raise DatasetError(f"{name}: class '{repeated}' is listed twice; class names must be distinct.")
        self._name, self._root, self._source = name, root, source
        self._images = _empty_image_columns()
        self._image_tables: list[pa.Table] = []
        self._rows: list[dict[str, Any]] = []
        self._exhaustive: list[tuple[str, list[int]]] = []  # images whose absences are pending, with present codes
        self._spool = RowSpool()

    def add_image(self, image: str, split: str, width: int | None = None, height: int | None = None) -> None:
        """Add one image; images keep the order in which they are added."""
        for column, value in zip(self._images.values(), (image, split, width, height), strict=True):
            column.append(value)
        if len(self._images["image"]) >= _BUFFERED_ROWS:
            self._flush_images()

    def add_images(self, columns: Mapping[str, Any]) -> None:
        """Add many images at once, as columns of the image table."""
        self._flush_images()
        self._image_tables.append(self._table(columns, IMAGES_SCHEMA))

    def add_row(self, image: str, label: str, present: bool | None, **columns: Any) -> None:
        """Add one annotation row; `columns` are further columns of the schema."""
        self._rows.append({"image": image, "label": label, "present": present, **columns})
        if len(self._rows) >= _BUFFERED_ROWS:
            self._flush_rows()

    def add_rows(self, columns: Mapping[str, Any]) -> None:
        """Add many annotation rows at once, as columns of the schema."""
        if len(columns["image"]):
            given = dict(columns)
            if given.get("source") is None:
                given["source"] = _repeat(self._source, len(given["image"]))
            self._spool.add(self._table(given, SCHEMA))

    def mark_rest_absent(self, image: str, present: Collection[str]) -> None:
        """Add a row of verified absence for every class that is not in `present`, for exhaustively labeled images."""
        self._exhaustive.append((image, [self._codes[label] for label in present]))
        if len(self._exhaustive) * len(self.classes) >= _BUFFERED_ABSENCES:
            self._flush_absences()

    def build(self, *, hierarchy: tuple[tuple[str, str], ...] = ()) -> Dataset:
        """Return the dataset of everything that was added.

        Raises:
            DatasetError: an image was added twice.
        """
        self._flush_images()
        self._flush_rows()
        self._flush_absences()
        images = pa.concat_tables([IMAGES_SCHEMA.empty_table(), *self._image_tables]).combine_chunks()
        self._check_distinct(images["image"])
        return Dataset(self._name, self._root, self.classes, images, self._spool.close(), hierarchy)

    def _check_distinct(self, images: pa.ChunkedArray) -> None:
        if (rows := Lookup(images).repeated()) is not None:
            repeated = images[rows[0]].as_py()
            raise DatasetError(f"{self._name}: image '{repeated}' is listed twice; each image belongs to one split.")

    def _flush_images(self) -> None:
        if self._images["image"]:
            self._image_tables.append(self._table(self._images, IMAGES_SCHEMA))
            self._images = _empty_image_columns()

    def _flush_rows(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            used = {name for row in rows for name in row}
            columns = {name: [row.get(name) for row in rows] for name in SCHEMA.names if name in used}
            if "kind" in columns:
                columns["kind"] = [kind or "image" for kind in columns["kind"]]
            if "source" in columns:
                columns["source"] = [source or self._source for source in columns["source"]]
            self.add_rows(columns)

    def _flush_absences(self) -> None:
        pending, self._exhaustive = self._exhaustive, []
        absent = np.ones((len(pending), len(self.classes)), dtype=bool)
        for position, (_, present) in enumerate(pending):
            absent[position, present] = False
        image, label = np.nonzero(absent)
        self.add_rows(
            {
                "image": pa.array([name for name, _ in pending], pa.string()).take(pa.array(image)),
                "label": pa.array(self.classes, pa.string()).take(pa.array(label)),
                "present": pa.array(np.zeros(len(image), dtype=bool)),
            }
        )

    def _table(self, columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
        try:
            return table(columns, schema)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise self._value_error(columns, schema) from None

    def _value_error(self, columns: Mapping[str, Any], schema: pa.Schema) -> DatasetError:
        """Return the error that names the first value that does not fit into its column."""
        for name, values in columns.items():
            for row, value in enumerate(values):
                try:
                    pa.array([value], schema.field(name).type)
                except (pa.ArrowException, OverflowError, TypeError, ValueError):
                    image = f"{columns['image'][row]!a:.200}"
                    return DatasetError(f"{self._name}: image {image} has a {name} of {value!a:.60}; correct it.")
        return DatasetError(f"{self._name}: its columns do not have the same length.")


def resolve_absent_means(
    absent_means: str | None, where: object, *, images: int, classes: int, present: int
) -> AbsentMeans:
    """Return what the user chose, or raise an error that counts what each choice would mean.

    Args:
        absent_means: the option of the reader; None if it was not given.
        where: the file or folder, for the message.
        images: number of images listed.
        classes: number of classes.
        present: number of (image, label) pairs that are present.
    """
    if absent_means is not None:
        return check_absent_means(absent_means)
    rest = images * classes - present
    raise DatasetError(
        f"{where} does not say whether a label that is not marked present is absent or unknown: {present:,} of "
        f"{images * classes:,} (image, label) pairs are present, and the other {rest:,} become unknown with "
        "absent_means='unknown' or verified absent with absent_means='absent'; choose one."
    )


def class_name_problems(classes: Collection[str], *, separator_can_be_given: bool) -> list[str]:
    """Return sentences about classes that look like several, or that differ only by case or blanks.

    Args:
        classes: of a table.
        separator_can_be_given: whether the reader has the option `separator`, which is then named.

    >>> class_name_problems(["cat", "dog", "Dog"], separator_can_be_given=True)
    ["Classes that differ only by case or blanks: 'Dog' and 'dog'; give them one spelling if they mean the same."]
    >>> class_name_problems(["dog, person", "dog"], separator_can_be_given=True)
    ["1 of 2 classes contains ',', ';' or '|': 'dog, person'; if cells hold several tags, give their separator=."]
    """
    sentences = []
    if marked := [name for name in classes if any(mark in name for mark in ",;|")]:
        verb = "contains" if len(marked) == 1 else "contain"
        remedy = "if cells hold several tags, give their separator=" if separator_can_be_given else "check their names"
        sentences.append(
            f"{len(marked):,} of {len(classes):,} classes {verb} ',', ';' or '|': {name_some(marked)}; {remedy}."
        )
    spellings: dict[str, list[str]] = {}
    for name in sorted(classes):
        spellings.setdefault("".join(name.casefold().split()), []).append(name)
    if similar := [" and ".join(f"'{name[:60]}'" for name in names) for names in spellings.values() if len(names) > 1]:
        listed = "; ".join(similar[:_NAMED]) + (
            f"; and {len(similar) - _NAMED:,} more" if len(similar) > _NAMED else ""
        )
        sentences.append(
            f"Classes that differ only by case or blanks: {listed}; give them one spelling if they mean the same."
        )
    return sentences


def name_some(names: Collection[str]) -> str:
    """Return the first few names, quoted, and the number of the others.

    >>> name_some(["a", "b"]), name_some(["a", "b", "c", "d", "e"])
    ("'a', 'b'", "'a', 'b', 'c' and 2 more")
    """
    shown = ", ".join(f"'{name[:100]}'" for name in list(names)[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED:,} more"


def check_absent_means(absent_means: str) -> AbsentMeans:
    """Return the option if it is one of the two values."""
    one_of("absent_means", absent_means, ["unknown", "absent"])
    return "absent" if absent_means == "absent" else "unknown"


def _is_text(name: object) -> bool:
    """Whether a name is a non-empty string that can be encoded as UTF-8."""
    try:
        return isinstance(name, str) and bool(name.encode())
    except UnicodeEncodeError:
        return False


def _empty_image_columns() -> dict[str, list[Any]]:
    return {column: [] for column in IMAGES_SCHEMA.names}


def _repeat(text: str, times: int) -> pa.Array:
    return pa.array([text], pa.string()).take(pa.array(np.zeros(times, dtype=np.int64)))
