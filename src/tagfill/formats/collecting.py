"""Collecting rows while a file is read: bounded memory, whatever the number of rows.

Rows are buffered, turned into Arrow batches, and beyond a few hundred thousand spooled to a temporary Parquet file
that disappears with the collector's dataset.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.annotations import IMAGES_SCHEMA, SCHEMA, Dataset, table

_BUFFER = 1 << 16
_IN_MEMORY = 1 << 19


class Spool(type(Path())):  # type: ignore[misc]
    """The path of a temporary file that is deleted with the last dataset that refers to it."""


class Collector:
    """Builds a dataset row by row.

    Args:
        name: of the dataset.
        root: where its images are.
        classes: class names in their order.
        source: written into the `source` column of every row.
    """

    def __init__(self, name: str, root: Path, classes: Collection[str], source: str) -> None:
        self.classes = tuple(classes)
        self._name, self._root, self._source = name, root, source
        self._images: dict[str, list[Any]] = {column: [] for column in IMAGES_SCHEMA.names}
        self._rows: list[dict[str, Any]] = []
        self._tables: list[pa.Table] = []
        self._held = 0
        self._writer: pq.ParquetWriter | None = None
        self._spool: Spool | None = None

    def add_image(self, image: str, split: str, width: int | None = None, height: int | None = None) -> None:
        """One image; images keep the order in which they are added."""
        for column, value in zip(IMAGES_SCHEMA.names, (image, split, width, height), strict=True):
            self._images[column].append(value)

    def add(self, image: str, label: str, present: bool | None, **columns: Any) -> None:
        """One annotation row; `columns` are any others of the schema."""
        self._rows.append({"image": image, "label": label, "present": present, "kind": "image", **columns})
        if len(self._rows) >= _BUFFER:
            self._flush()

    def add_absent(self, image: str, present: Collection[str]) -> None:
        """A row of verified absence for every class that is not among `present`: for exhaustively labelled images."""
        shown = set(present)
        for label in self.classes:
            if label not in shown:
                self.add(image, label, False)

    def dataset(
        self, *, hierarchy: tuple[tuple[str, str], ...] = (), protocol: Mapping[str, Any] | None = None
    ) -> Dataset:
        """The dataset of everything that was added."""
        self._flush()
        images = table(self._images, IMAGES_SCHEMA)
        annotations: pa.Table | Path
        if self._writer is None:
            annotations = pa.concat_tables([SCHEMA.empty_table(), *self._tables])
        else:
            self._writer.close()
            assert self._spool is not None
            annotations = self._spool
        return Dataset(self._name, self._root, self.classes, images, annotations, hierarchy, protocol=protocol)

    def _flush(self) -> None:
        if not self._rows:
            return
        columns: dict[str, Any] = {
            name: [row.get(name) for row in self._rows]
            for name in SCHEMA.names
            if any(row.get(name) is not None for row in self._rows) or name in ("image", "label", "present")
        }
        same = pa.array([self._source]).take(pa.array(np.zeros(len(self._rows), dtype=np.int64)))
        columns.setdefault("source", same)
        rows = table(columns)
        self._rows = []
        if self._writer is None and self._held + rows.num_rows <= _IN_MEMORY:
            self._tables.append(rows)
            self._held += rows.num_rows
            return
        if self._writer is None:
            with tempfile.NamedTemporaryFile(prefix="tagfill-rows-", suffix=".parquet", delete=False) as file:
                self._spool = Spool(file.name)
            weakref.finalize(self._spool, Path(file.name).unlink, missing_ok=True)
            self._writer = pq.ParquetWriter(self._spool, SCHEMA, compression="zstd")
            for held in self._tables:
                self._writer.write_table(held)
            self._tables = []
        self._writer.write_table(rows)
