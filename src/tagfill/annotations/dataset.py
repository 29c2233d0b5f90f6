"""A dataset: ordered classes, a table of images with their splits, and a table of annotation rows.

On disk it is a folder with `dataset.yaml`, `images.parquet` and `annotations.parquet`. Annotations stay in
their file until they are needed, and are then streamed, so that opening a large dataset is cheap.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from tagfill.annotations import identity, resolve
from tagfill.annotations.labels import LabelMatrix
from tagfill.annotations.rows import IMAGES_SCHEMA, SCHEMA
from tagfill.annotations.states import UNKNOWN
from tagfill.errors import DatasetError
from tagfill.files import replacing, sha256_of_strings

_CODED = ("image", "label", "kind", "source")  # columns of few distinct values, kept as dictionaries
_BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class Dataset:
    """Images, classes and what is known about them.

    Attributes:
        name: a short name, used for run folders.
        root: where the images are, a folder.
        classes: class names; their order is the order of every label matrix.
        images: the table of images (image, split, width, height).
        annotations: the rows, as a table or as the path of a Parquet file.
        hierarchy: (child, parent) pairs.
        truth: the folder of the fully labelled dataset that this one was simulated from, if any.
        protocol: how it was simulated, if it was: name, parameters, seed, counts.
    """

    name: str
    root: Path
    classes: tuple[str, ...]
    images: pa.Table
    annotations: pa.Table | Path
    hierarchy: tuple[tuple[str, str], ...] = ()
    truth: Path | None = None
    protocol: Mapping[str, Any] | None = None
    folder: Path | None = field(default=None, compare=False)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Dataset:
        """Open a dataset folder.

        >>> Dataset.open("my-data").classes  # doctest: +SKIP
        ('anchor', 'bell', ...)
        """
        folder = Path(folder)
        description = _read_description(folder)
        images = _read_images(folder / "images.parquet")
        rows = folder / "annotations.parquet"
        if not rows.is_file():
            raise DatasetError(f"{folder} has no annotations.parquet; it is not a complete dataset folder.")
        return cls(
            name=str(description["name"]),
            root=Path(os.path.normpath(folder / description["root"])),
            classes=tuple(description["classes"]),
            images=images,
            annotations=rows,
            hierarchy=tuple((child, parent) for child, parent in description.get("hierarchy", [])),
            truth=Path(os.path.normpath(folder / description["truth"])) if "truth" in description else None,
            protocol=description.get("protocol"),
            folder=folder,
        )

    def save(self, folder: str | os.PathLike[str]) -> Dataset:
        """Write the dataset folder and open it; `dataset.yaml` comes last, so that a half-written one does not open."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "images.parquet") as file:
            pq.write_table(self.images, file, compression="zstd")
        with (
            replacing(folder / "annotations.parquet") as file,
            pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer,
        ):
            for batch in self.scan():
                writer.write_batch(_plain(batch))
        description: dict[str, Any] = {
            "name": self.name,
            "root": _relative(self.root, folder),
            "classes": list(self.classes),
        }
        if self.hierarchy:
            description["hierarchy"] = [list(edge) for edge in self.hierarchy]
        if self.truth is not None:
            description["truth"] = _relative(self.truth, folder)
        if self.protocol is not None:
            description["protocol"] = dict(self.protocol)
        with replacing(folder / "dataset.yaml") as file:
            file.write(yaml.safe_dump(description, sort_keys=False, allow_unicode=True).encode())
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
        codes = coded.indices.to_numpy()
        return {name: np.flatnonzero(codes == code) for code, name in enumerate(coded.dictionary.to_pylist())}

    def split(self, name: str) -> NDArray[np.int64]:
        """Rows of the image table that belong to a split."""
        if name not in self.splits:
            raise DatasetError(
                f"Dataset {self.name} has no split '{name}'; it has {', '.join(self.splits) or 'no image'}."
            )
        return self.splits[name]

    def names(self, rows: NDArray[np.integer] | None = None) -> list[str]:
        """Image names, of all images or of some rows of the image table."""
        column = self.images["image"]
        names: list[str] = (column if rows is None else column.take(pa.array(rows))).to_pylist()
        return names

    def scan(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The annotation rows in batches, with text of few distinct values coded as dictionaries."""
        if isinstance(self.annotations, Path):
            coded = [name for name in _CODED if columns is None or name in columns]
            with pq.ParquetFile(self.annotations, read_dictionary=coded) as file:
                yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
        else:
            table = self.annotations if columns is None else self.annotations.select(columns)
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    def rows(self) -> pa.Table:
        """All annotation rows as one table."""
        return pa.Table.from_batches([_plain(batch) for batch in self.scan()], schema=SCHEMA)

    def labels(self, split: str | None = None) -> LabelMatrix:
        """What is known about the images of a split (or all of them), decided from the rows once and kept."""
        if split not in self._decided:
            self._decided[split] = self._decide(split)
        return self._decided[split]

    @cached_property
    def _decided(self) -> dict[str | None, LabelMatrix]:
        return {}

    def _decide(self, split: str | None) -> LabelMatrix:
        chosen = np.arange(len(self)) if split is None else self.split(split)
        position = np.full(len(self) + 1, -1, dtype=np.int64)  # the last one stands for images not in the table
        position[chosen] = np.arange(len(chosen))
        keys, says, times, origin = self._statements(position)
        try:
            keys, values = resolve.decide(keys, says, times)
        except resolve.ContradictionError as clash:
            raise self._contradiction(int(origin[clash.first]), int(origin[clash.second])) from None
        width = max(len(self.classes), 1)
        return LabelMatrix.from_entries(keys // width, keys % width, values, (len(chosen), len(self.classes)))

    @cached_property
    def identities(self) -> dict[str, str]:
        """Hashes of the images, the classes and the labels; see `tagfill.annotations.identity`."""
        rows = identity.RowsHash()
        for batch in self.scan():
            rows.update(batch)
        labels = [rows.hexdigest(), *(f"{child}\0{parent}" for child, parent in sorted(self.hierarchy))]
        return {
            "images": sha256_of_strings(self.names()),
            "classes": sha256_of_strings(self.classes),
            "labels": sha256_of_strings([*labels, *self.images["split"].to_pylist()]),
        }

    def _statements(
        self, position: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]:
        """Key, statement, time and row number of each row that speaks about a chosen image."""
        names, classes = self.images["image"].combine_chunks(), pa.array(self.classes, pa.string())
        keys, says, times, origin = [], [], [], []
        offset = 0
        for batch in self.scan(["image", "label", "present", "kind", "time"]):
            image, label = _codes(batch["image"], names), _codes(batch["label"], classes)
            if (label < 0).any():
                raise self._stray(batch, offset, label, "label", "class list of dataset.yaml")
            if (image < 0).any():
                raise self._stray(batch, offset, image, "image", "image table")
            at = position[image]
            present = pc.fill_null(batch["present"].cast(pa.int8()), UNKNOWN).to_numpy(zero_copy_only=False)
            located = _codes(batch["kind"], pa.array(["image"])) < 0
            said = resolve.statements(present, located)
            use = np.flatnonzero((at >= 0) & (said != resolve.REGION_ONLY))
            time = pc.fill_null(batch["time"].cast(pa.int64()), resolve.NO_TIME).to_numpy(zero_copy_only=False)
            keys.append(at[use] * len(self.classes) + label[use])
            says.append(said[use])
            times.append(time[use])
            origin.append(use + offset)
            offset += batch.num_rows
        if not keys:
            return np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(keys), np.concatenate(says), np.concatenate(times), np.concatenate(origin)

    def _where(self) -> str:
        return str(self.annotations) if isinstance(self.annotations, Path) else f"the annotations of {self.name}"

    def _stray(
        self, batch: pa.RecordBatch, offset: int, codes: NDArray[np.int64], column: str, table: str
    ) -> DatasetError:
        row = int(np.flatnonzero(codes < 0)[0])
        value = batch[column][row].as_py()
        return DatasetError(
            f"{self._where()}, row {offset + row}: {column} '{value}' is not in the {table}; "
            "add it there or drop the row."
        )

    def _contradiction(self, first: int, second: int) -> DatasetError:
        record = self.rows().slice(first, 1).to_pylist()[0]
        return DatasetError(
            f"{self._where()}: rows {first} and {second} contradict each other about label '{record['label']}' of "
            f"image '{record['image']}' and neither is newer; give them times or drop one."
        )


def _codes(column: pa.Array, values: pa.Array) -> NDArray[np.int64]:
    """Position of each entry in `values`, -1 where it is not there."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    found = pc.fill_null(pc.index_in(column.dictionary, value_set=values), -1).to_numpy()
    codes: NDArray[np.int64] = found.astype(np.int64)[column.indices.to_numpy(zero_copy_only=False)]
    return codes


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in the schema of the file, dictionaries decoded."""
    return batch.cast(SCHEMA)


def _relative(path: Path, folder: Path) -> str:
    """`path` as written into `folder`: relative where the two are on the same tree, so that both can move together."""
    return os.path.relpath(path.absolute(), folder.absolute())


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.yaml"
    if not path.is_file():
        raise DatasetError(f"{folder} is not a dataset folder: it has no dataset.yaml. Make one with 'tagfill import'.")
    try:
        description: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(description, dict):
        description = {}
    missing = [key for key in ("name", "root", "classes") if key not in description]
    if missing:
        raise DatasetError(f"{path} lacks {', '.join(missing)}; see the documentation of dataset folders.")
    classes = description["classes"]
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise DatasetError(f"{path}: 'classes' must be a list of names; quote names that look like numbers or dates.")
    if repeated := sorted({name for name in classes if classes.count(name) > 1}):
        raise DatasetError(f"{path}: class '{repeated[0]}' is listed twice; class names must be distinct.")
    checked: dict[str, Any] = description
    return checked


def _read_images(path: Path) -> pa.Table:
    if not path.is_file():
        raise DatasetError(f"{path.parent} has no images.parquet; it is not a complete dataset folder.")
    try:
        return pq.read_table(path).cast(IMAGES_SCHEMA)
    except (pa.ArrowException, ValueError) as error:
        raise DatasetError(f"{path} cannot be read as a table of images: {str(error).splitlines()[0]}.") from None
