"""The folder of a dataset: `dataset.yaml` beside the two tables.

Where the images of a dataset are: a folder, an archive, or a URL.

A dataset in numbers: what is known about which images, and what it cost to find out.

A dataset: ordered classes, a table of images with their splits, and a table of annotation rows.

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
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import description, identity, resolve, tables
from tagfill.dataset.tables import IMAGES_SCHEMA, SCHEMA, from_records
from tagfill.errors import DatasetError
from tagfill.io import atomic_write
from tagfill.labels import LabelMatrix

if TYPE_CHECKING:
    pass


def read_folder(folder: Path) -> dict[str, Any]:
    """The attributes of the dataset in a folder; of the annotations only the head of their file is read."""
    content = description.read_description(folder)
    rows, images = tables.find_table(folder, "annotations"), tables.find_table(folder, "images")
    tables.check_table(rows, SCHEMA)
    truth = content.get("truth")
    return {
        "name": content["name"],
        "root": _found(image_root(content["root"]), folder),
        "classes": tuple(content["classes"]),
        "images": tables.read_table(images, IMAGES_SCHEMA),
        "annotations": rows,
        "hierarchy": tuple((child, parent) for child, parent in content.get("hierarchy", [])),
        "truth": None if truth is None else _found(Path(truth), folder),
        "protocol": content.get("protocol"),
        "folder": folder,
        "conflict": content.get("conflict", "error"),
    }


def write_folder(dataset: Dataset, folder: Path, kind: str) -> None:
    """Write the three files, and remove tables of the other kind.

    All of them are complete before the first takes its place, and `dataset.yaml` is the last to do so.
    """
    write_table = tables.writer(kind)
    with atomic_write(folder / description.FILE) as text:
        text.write(description.dump_description(_content(dataset, folder)))
        with atomic_write(folder / f"annotations.{kind}") as rows, atomic_write(folder / f"images.{kind}") as images:
            write_table(images, dataset.images.to_batches(), IMAGES_SCHEMA)
            write_table(rows, dataset.scan(), SCHEMA)
        for other in tables.FILE_KINDS:
            if other != kind:
                for name in ("annotations", "images"):
                    (folder / f"{name}.{other}").unlink(missing_ok=True)


def _content(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """What `dataset.yaml` says."""
    content: dict[str, Any] = {
        "name": dataset.name,
        "root": _relative(image_root(dataset.root), folder),
        "classes": list(dataset.classes),
    }
    if dataset.hierarchy:
        content["hierarchy"] = [list(edge) for edge in dataset.hierarchy]
    if dataset.truth is not None:
        content["truth"] = _relative(dataset.truth, folder)
    if dataset.protocol is not None:
        content["protocol"] = dict(dataset.protocol)
    if dataset.conflict != "error":
        content["conflict"] = dataset.conflict
    return content


def _relative(path: Path | str, folder: Path) -> str:
    """A path as written into `folder`: relative, so that both can move together; a URL stays what it is."""
    return path if isinstance(path, str) else os.path.relpath(path.absolute(), folder.absolute())


def _found(path: Path | str, folder: Path) -> Path | str:
    """What was written into `folder`, as seen from here."""
    return path if isinstance(path, str) else Path(os.path.normpath(folder / path))


def image_root(root: str | os.PathLike[str]) -> Path | str:
    """A URL as it is written, and anything else as a path.

    >>> image_root("s3://bucket/photos/"), image_root("my/photos") == Path("my/photos")
    ('s3://bucket/photos/', True)
    """
    text = os.fspath(root)
    return text if "://" in text else Path(text)


def local_root(root: str | os.PathLike[str], purpose: str) -> Path:
    """The image root for something that can only use files of this machine, and says so about a URL."""
    found = image_root(root)
    if isinstance(found, str):
        raise DatasetError(
            f"{purpose} needs image files on this machine, but the image root is {found}; "
            "download the images and make their folder the root of the dataset."
        )
    return found


@dataclass(frozen=True)
class SplitOverview:
    """Counts of one split.

    Attributes:
        images: in the split.
        annotated: images about which something is known.
        positives: labels known to be present.
        negatives: labels known to be absent.
        share: of all (image, label) pairs that are known.
        classes: positives and negatives of each class.
    """

    images: int
    annotated: int
    positives: int
    negatives: int
    share: float
    classes: dict[str, tuple[int, int]]

    @property
    def positives_per_image(self) -> float:
        """Known positives of an image on average."""
        return self.positives / max(self.images, 1)


@dataclass(frozen=True)
class Overview:
    """Counts of a dataset.

    Attributes:
        splits: in the order of the image table.
        rows: annotation rows.
        kinds: rows of each kind of annotation.
        seconds: what the rows cost together, where they say so.
    """

    splits: dict[str, SplitOverview]
    rows: int
    kinds: dict[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "splits": {
                name: {
                    "images": part.images,
                    "annotated_images": part.annotated,
                    "positives": part.positives,
                    "negatives": part.negatives,
                    "known_share": part.share,
                    "positives_per_image": part.positives_per_image,
                    "classes": {label: {"positives": p, "negatives": n} for label, (p, n) in part.classes.items()},
                }
                for name, part in self.splits.items()
            },
            "rows": self.rows,
            "kinds": self.kinds,
            "seconds": self.seconds,
        }


def overview(dataset: Dataset) -> Overview:
    """Count what a dataset holds; its rows are streamed.

    >>> overview(Dataset.open("my-data")).splits["train"].positives_per_image  # doctest: +SKIP
    1.0
    """
    kinds: dict[str, int] = {}
    rows, seconds = 0, 0.0
    for batch in dataset.scan(["kind", "seconds"]):
        rows += batch.num_rows
        seconds += pc.sum(batch["seconds"]).as_py() or 0.0
        for entry in pc.value_counts(batch["kind"]).to_pylist():
            kinds[entry["values"]] = kinds.get(entry["values"], 0) + entry["counts"]
    return Overview({name: _split(dataset, name) for name in dataset.splits}, rows, kinds, seconds)


def _split(dataset: Dataset, name: str) -> SplitOverview:
    labels = dataset.labels(name)
    positives, negatives = labels.positives, labels.negatives
    known = int(positives.sum() + negatives.sum())
    return SplitOverview(
        images=len(labels),
        annotated=int((labels.starts[1:] > labels.starts[:-1]).sum()),
        positives=int(positives.sum()),
        negatives=int(negatives.sum()),
        share=known / max(len(labels) * labels.width, 1),
        classes={label: (int(p), int(n)) for label, p, n in zip(dataset.classes, positives, negatives, strict=True)},
    )


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
        return cls(**read_folder(Path(folder)))

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
                of `tagfill.dataset.SCHEMA`.

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
        write_folder(self, Path(folder), tables)
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
            yield from tables.stream_table(self.annotations, SCHEMA, columns)
            return
        tables.check_columns(self.annotations.schema.names, SCHEMA, self.where())
        wanted = tables.select_fields(SCHEMA, columns)
        here = [name for name in wanted.names if name in self.annotations.schema.names]
        for batch in self.annotations.select(here).to_batches(max_chunksize=tables.BATCH_ROWS):
            yield tables.to_schema(batch, wanted, self.where())

    def rows(self) -> pa.Table:
        """All annotation rows as one table."""
        return pa.Table.from_batches(
            [tables.decode_dictionaries(batch, SCHEMA) for batch in self.scan()], schema=SCHEMA
        )

    def labels(self, split: str | None = None, *, conflict: str | None = None) -> LabelMatrix:
        """What is known about the images of a split (or all of them), decided from the rows once and kept.

        Args:
            split: its images in table order.
            conflict: `error` or `majority`, in place of the dataset's own.

        Raises:
            DatasetError: naming the rows, for contradictions that nothing settles; see `tagfill.dataset.resolve`
                and `tagfill.dataset.hierarchy` for the rules.
        """
        conflict = conflict or self.conflict
        if (split, conflict) not in self._decided:
            everything = self._decided.get((None, conflict))
            self._decided[split, conflict] = (
                resolve.labels(self, split, conflict)
                if everything is None or split is None
                else everything.take(self.split(split))
            )
        return self._decided[split, conflict]

    @cached_property
    def _decided(self) -> dict[tuple[str | None, str], LabelMatrix]:
        return {}

    @cached_property
    def identities(self) -> dict[str, str]:
        """Hashes of the images, the classes and the labels; see `tagfill.dataset.identity`."""
        return identity.identities(self)

    def where(self, table: str = "annotations") -> str:
        """How an error speaks of the file of a table: `annotations`, `images` or `dataset`."""
        if table == "annotations" and isinstance(self.annotations, Path):
            return str(self.annotations)
        if self.folder is None or table == "annotations":
            return f"the {table} of {self.name}" if table != "dataset" else self.name
        return str(self.folder / description.FILE if table == "dataset" else tables.find_table(self.folder, table))
