"""Collecting rows while a file is read: bounded memory, whatever the number of rows.

Rows come one at a time, as whole columns, or as the absences of an exhaustively labelled image. They are buffered,
turned into Arrow tables, and spooled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.annotations import IMAGES_SCHEMA, SCHEMA, Dataset, table
from tagfill.annotations.spooling import RowSpool
from tagfill.errors import DatasetError

_BUFFERED_ROWS = 1 << 14
_ABSENCES = 1 << 18  # made at once


class Collector:
    """Builds a dataset from what a format's reader finds.

    Args:
        name: of the dataset.
        root: where its images are.
        classes: class names in their order.
        source: written into the `source` column of every row that does not bring its own.
    """

    def __init__(self, name: str, root: Path | str, classes: Collection[str], source: str) -> None:
        self.classes = tuple(classes)
        for label in self.classes:
            if not _is_text(label):
                raise DatasetError(f"{name}: a class is called {label!a:.60}; it needs a name that is text.")
        self._codes = {label: code for code, label in enumerate(self.classes)}
        if len(self._codes) < len(self.classes):
            repeated = next(label for label in self.classes if self.classes.count(label) > 1)
            raise DatasetError(f"{name}: class '{repeated}' is listed twice; class names must be distinct.")
        self._name, self._root, self._source = name, root, source
        self._images = _new_images()
        self._image_tables: list[pa.Table] = []
        self._rows: list[dict[str, Any]] = []
        self._complete: list[str] = []  # images whose absences are still to be made
        self._shown: list[list[int]] = []  # and the classes that they do show
        self._spool = RowSpool()

    def add_image(self, image: str, split: str, width: int | None = None, height: int | None = None) -> None:
        """One image; images keep the order in which they are added."""
        for column, value in zip(self._images.values(), (image, split, width, height), strict=True):
            column.append(value)
        if len(self._images["image"]) >= _BUFFERED_ROWS:
            self._flush_images()

    def add_images(self, columns: Mapping[str, Any]) -> None:
        """Many images at once, as columns of the table of images."""
        self._flush_images()
        self._image_tables.append(self._table(columns, IMAGES_SCHEMA))

    def add(self, image: str, label: str, present: bool | None, **columns: Any) -> None:
        """One annotation row; `columns` are any others of the schema."""
        self._rows.append({"image": image, "label": label, "present": present, **columns})
        if len(self._rows) >= _BUFFERED_ROWS:
            self._flush()

    def add_rows(self, columns: Mapping[str, Any]) -> None:
        """Many annotation rows at once, as columns of the schema."""
        if len(columns["image"]):
            given = dict(columns)
            if given.get("source") is None:
                given["source"] = _repeat(self._source, len(given["image"]))
            self._spool.add(self._table(given, SCHEMA))

    def add_absent(self, image: str, present: Collection[str]) -> None:
        """A row of verified absence for every class that is not among `present`: for exhaustively labelled images."""
        self._complete.append(image)
        self._shown.append([self._codes[label] for label in present])
        if len(self._complete) * len(self.classes) >= _ABSENCES:
            self._flush_absences()

    def dataset(
        self, *, hierarchy: tuple[tuple[str, str], ...] = (), protocol: Mapping[str, Any] | None = None
    ) -> Dataset:
        """The dataset of everything that was added."""
        self._flush_images()
        self._flush()
        self._flush_absences()
        images = pa.concat_tables([IMAGES_SCHEMA.empty_table(), *self._image_tables]).combine_chunks()
        self._check_distinct(images["image"])
        return Dataset(self._name, self._root, self.classes, images, self._spool.close(), hierarchy, protocol=protocol)

    def _check_distinct(self, images: pa.ChunkedArray) -> None:
        if pc.count_distinct(images).as_py() < len(images):
            counts = pc.value_counts(images)
            repeated = next(entry["values"] for entry in counts.to_pylist() if entry["counts"] > 1)
            raise DatasetError(f"{self._name}: image '{repeated}' is listed twice; each image belongs to one split.")

    def _flush_images(self) -> None:
        if self._images["image"]:
            self._image_tables.append(self._table(self._images, IMAGES_SCHEMA))
            self._images = _new_images()

    def _table(self, columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
        try:
            return table(columns, schema)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise self._unfit(columns, schema) from None

    def _unfit(self, columns: Mapping[str, Any], schema: pa.Schema) -> DatasetError:
        """The error for a value that has no place in its column."""
        for name, values in columns.items():
            for row, value in enumerate(values):
                try:
                    pa.array([value], schema.field(name).type)
                except (pa.ArrowException, OverflowError, TypeError, ValueError):
                    image = f"{columns['image'][row]!a:.200}"
                    return DatasetError(f"{self._name}: image {image} has a {name} of {value!a:.60}; mend it.")
        return DatasetError(f"{self._name}: its columns are not of the same length.")

    def _flush(self) -> None:
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
        images, shown = self._complete, self._shown
        self._complete, self._shown = [], []
        absent = np.ones((len(images), len(self.classes)), dtype=bool)
        for row, codes in enumerate(shown):
            absent[row, codes] = False
        image, label = np.nonzero(absent)
        self.add_rows(
            {
                "image": pa.array(images, pa.string()).take(pa.array(image)),
                "label": pa.array(self.classes, pa.string()).take(pa.array(label)),
                "present": pa.array(np.zeros(len(image), dtype=bool)),
            }
        )


def _is_text(name: object) -> bool:
    """Whether a name is text that is not empty and that UTF-8 can say."""
    try:
        return isinstance(name, str) and bool(name.encode())
    except UnicodeEncodeError:
        return False


def _new_images() -> dict[str, list[Any]]:
    return {column: [] for column in IMAGES_SCHEMA.names}


def _repeat(text: str, times: int) -> pa.Array:
    return pa.array([text], pa.string()).take(pa.array(np.zeros(times, dtype=np.int64)))
