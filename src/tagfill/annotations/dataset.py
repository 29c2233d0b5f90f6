"""A dataset: ordered classes, a table of images with their splits, and a table of annotation rows.

On disk it is a folder with `dataset.yaml`, `images.parquet` and `annotations.parquet`; where a Parquet file is missing,
its CSV twin (`images.csv`, `annotations.csv`) is read. Annotations stay in their file until they are needed, and are
then streamed, so that opening a large dataset is cheap.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.annotations import deciding, description, folders, identity, tables
from tagfill.annotations.labels import LabelMatrix
from tagfill.annotations.rows import IMAGES_SCHEMA, SCHEMA, from_records
from tagfill.errors import DatasetError


@dataclass(frozen=True)
class Dataset:
    """Images, classes and what is known about them.

    Attributes:
        name: a short name, used for run folders.
        root: where the images are: a path, or a URL as text.
        classes: class names; their order is the order of every label matrix.
        images: the table of images (image, split, width, height).
        annotations: the rows, as a table or as the path of a Parquet or CSV file.
        hierarchy: (child, parent) pairs.
        truth: the folder of the fully labelled dataset that this one was simulated from, if any.
        protocol: how it was simulated, if it was: name, parameters, seed, counts.
        folder: where it was opened, if it was.
        conflict: what to do about rows of the same age that contradict each other: `error` names them, `majority`
            lets their sources vote.
    """

    name: str
    root: Path | str
    classes: tuple[str, ...]
    images: pa.Table
    annotations: pa.Table | Path
    hierarchy: tuple[tuple[str, str], ...] = ()
    truth: Path | None = None
    protocol: Mapping[str, Any] | None = None
    folder: Path | None = field(default=None, compare=False)
    conflict: str = "error"

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Dataset:
        """Open a dataset folder.

        >>> Dataset.open("my-data").classes  # doctest: +SKIP
        ('anchor', 'bell', ...)
        """
        return cls(**folders.read(Path(folder)))

    @classmethod
    def from_records(
        cls,
        name: str,
        root: Path | str,
        classes: Sequence[str],
        images: Sequence[Mapping[str, Any]],
        rows: Sequence[Mapping[str, Any]],
    ) -> Dataset:
        """A dataset from plain values, for files that no format reads.

        Args:
            name: a short name, used for run folders.
            root: where the images are: a path, or a URL as text.
            classes: class names in their order.
            images: a mapping an image: `image` and `split`, and `width` and `height` where they are known.
            rows: a mapping for each thing that somebody looked at: `image`, `label` and `present`, and any other column
                of `tagfill.annotations.SCHEMA`.

        >>> Dataset.from_records(
        ...     "shop",
        ...     "photos",
        ...     ["cup", "spoon"],
        ...     [{"image": "a.jpg", "split": "train"}],
        ...     [{"image": "a.jpg", "label": "spoon", "present": True}],
        ... ).labels("train").dense().tolist()
        [[-1, 1]]
        """
        return cls(name, root, tuple(classes), from_records(images, IMAGES_SCHEMA), from_records(rows))

    def with_records(self, rows: Sequence[Mapping[str, Any]]) -> Dataset:
        """A copy, not saved yet, that also has these rows: what somebody found out since.

        Args:
            rows: as in `from_records`. Of two rows about an image and a label the newer decides, by `time`.
        """
        more = pa.concat_tables([self.rows(), from_records(rows)])
        return self.replace(annotations=more, folder=None)

    def save(self, folder: str | os.PathLike[str], *, tables: str = "parquet") -> Dataset:
        """Write the dataset folder and open it.

        Args:
            folder: is created if need be; tables of the other kind in it are removed.
            tables: `parquet`, or `csv` to write `images.csv` and `annotations.csv`.
        """
        folders.write(self, Path(folder), tables)
        return Dataset.open(folder)

    def replace(self, **changes: Any) -> Dataset:
        """A copy with some attributes changed."""
        return replace(self, **changes)

    def __len__(self) -> int:
        return int(self.images.num_rows)

    @cached_property
    def splits(self) -> dict[str, NDArray[np.int64]]:
        """Rows of the image table of each split, in table order, splits in order of appearance."""
        coded = self.images["split"].combine_chunks().dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy()
        return {name: np.flatnonzero(codes == code) for code, name in enumerate(coded.dictionary.to_pylist())}

    def split(self, name: str) -> NDArray[np.int64]:
        """Rows of the image table that belong to a split."""
        if name not in self.splits:
            raise DatasetError(
                f"Dataset {self.name} has no split '{name}'; it has {', '.join(self.splits) or 'no image'}."
            )
        return self.splits[name]

    def split_of_images(self) -> NDArray[np.object_]:
        """The split of each image; a copy, to change and to give to `with_splits`."""
        return np.array(self.images["split"].to_pylist(), dtype=object)

    def with_splits(self, splits: Sequence[str] | NDArray[np.object_]) -> Dataset:
        """The dataset with its images divided anew.

        Args:
            splits: N names, the split of each image.
        """
        column = self.images.schema.get_field_index("split")
        field = self.images.schema.field(column)
        return self.replace(images=self.images.set_column(column, field, pa.array(list(splits), pa.string())))

    def names(self, rows: NDArray[np.integer] | None = None) -> list[str]:
        """Image names, of all images or of some rows of the image table."""
        column = self.images["image"]
        names: list[str] = (column if rows is None else column.take(pa.array(rows))).to_pylist()
        return names

    def scan(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The annotation rows in batches, with text of few distinct values coded as dictionaries where it can be."""
        if isinstance(self.annotations, Path):
            yield from tables.stream(self.annotations, SCHEMA, columns)
            return
        tables.check_columns(self.annotations.schema.names, SCHEMA, self.where())
        wanted = tables.part_of(SCHEMA, columns)
        here = [name for name in wanted.names if name in self.annotations.schema.names]
        for batch in self.annotations.select(here).to_batches(max_chunksize=tables.BATCH_ROWS):
            yield tables.conform(batch, wanted, self.where())

    def rows(self) -> pa.Table:
        """All annotation rows as one table."""
        return pa.Table.from_batches([tables.plain(batch, SCHEMA) for batch in self.scan()], schema=SCHEMA)

    def labels(self, split: str | None = None, *, conflict: str | None = None) -> LabelMatrix:
        """What is known about the images of a split (or all of them), decided from the rows once and kept.

        Args:
            split: its images in table order.
            conflict: `error` or `majority`, in place of the dataset's own.

        Raises:
            DatasetError: naming the rows, for contradictions that nothing settles; see `tagfill.annotations.resolve`
                and `tagfill.annotations.hierarchy` for the rules.
        """
        conflict = conflict or self.conflict
        if (split, conflict) not in self._decided:
            everything = self._decided.get((None, conflict))
            self._decided[split, conflict] = (
                deciding.labels(self, split, conflict)
                if everything is None or split is None
                else everything.take(self.split(split))
            )
        return self._decided[split, conflict]

    @cached_property
    def _decided(self) -> dict[tuple[str | None, str], LabelMatrix]:
        return {}

    @cached_property
    def identities(self) -> dict[str, str]:
        """Hashes of the images, the classes and the labels; see `tagfill.annotations.identity`."""
        return identity.identities(self)

    def where(self, table: str = "annotations") -> str:
        """How an error speaks of the file of a table: `annotations`, `images` or `dataset`."""
        if table == "annotations" and isinstance(self.annotations, Path):
            return str(self.annotations)
        if self.folder is None or table == "annotations":
            return f"the {table} of {self.name}" if table != "dataset" else self.name
        return str(self.folder / description.FILE if table == "dataset" else tables.find(self.folder, table))
