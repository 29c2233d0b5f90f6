"""A dataset: ordered classes, a table of images with their splits, and a table of annotation rows.

On disk it is a folder with `dataset.yaml`, `images.parquet` and `annotations.parquet`; where a Parquet file is missing,
its CSV twin (`images.csv`, `annotations.csv`) is read. Annotations stay in their file until they are needed, and are
then streamed, so that opening a large dataset is cheap.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.dataset import description, identity, notebook, resolve, tables
from tagfill.dataset.notebook import ImageRecord
from tagfill.dataset.tables import IMAGES_SCHEMA, SCHEMA, from_records
from tagfill.errors import DatasetError
from tagfill.io import exclusive_lock, finish_replacing, is_replacing, replace_files, sha256
from tagfill.labels import LabelMatrix
from tagfill.progress import NOTEBOOK

if TYPE_CHECKING:
    import pandas
    import polars
    from PIL import Image


@dataclass(frozen=True, repr=False)
class Dataset:
    """Images, classes and what is known about them.

    `dataset[0]` is an image with its tags, `dataset[-3:]` a list of images, and a loop goes over all of them. A
    notebook shows counts and some photos.

    Attributes:
        name: a short name, used for run folders.
        root: where the images are: a path, or a URL as text.
        classes: class names; their order is the order of every label matrix.
        images: the table of images (image, split, width, height).
        annotations: the rows, as a table or as the path of a Parquet or CSV file.
        hierarchy: (child, parent) pairs.
        truth: folder of the fully labeled dataset that this one was simulated from, if any.
        protocol: how it was simulated, if it was: name, parameters, seed, counts.
        folder: where it was opened, if it was.
        conflict: how rows of the same age that contradict each other are resolved: `error` raises and names them,
            `majority` lets their sources vote.
        checksums: SHA-256 of files that are checked before they are read, by path.
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
    checksums: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Dataset:
        """Open a dataset folder.

        >>> Dataset.open("my-data").classes  # doctest: +SKIP
        ('anchor', 'bell', ...)
        """
        return cls(**_read_folder(Path(folder)))

    @classmethod
    def from_records(
        cls,
        name: str,
        root: Path | str,
        classes: Sequence[str],
        images: Sequence[Mapping[str, Any]],
        rows: Sequence[Mapping[str, Any]],
    ) -> Dataset:
        """Build a dataset from Python values, for files that no format reads.

        Args:
            name: a short name, used for run folders.
            root: where the images are: a path, or a URL as text.
            classes: class names in their order.
            images: one mapping per image: `image` and `split`, and `width` and `height` where they are known.
            rows: one mapping per annotation: `image`, `label` and `present`, and any other column of
                `tagfill.dataset.SCHEMA`.

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

    @classmethod
    def from_pandas(
        cls,
        frame: pandas.DataFrame,
        photos: str | os.PathLike[str] | None = None,
        *,
        name: str = "tags",
        **options: Any,
    ) -> Dataset:
        """Build a dataset from a data frame with one tag per row, several tags per cell, or one column per class.

        The columns are found, and what was understood is shown, as by the format `tags`; tags that an image does not
        list are unknown.

        Args:
            frame: names of images in a column or in the index, and their tags.
            photos: where the photos are. Photos that the table does not name join without tags, and photos that are not
                there are left out with a warning. By default names are paths, and nothing is looked up.
            name: of the dataset, used for run folders.
            **options: what was not understood as you meant it, see `tagfill.formats.tags.read`: `image_column`,
                `tag_column`, `class_columns`, `separator`, `absent_means`, …

        >>> import pandas
        >>> frame = pandas.DataFrame({"file": ["a.jpg", "b.jpg"], "tags": ["cat; dog", "cat"]})
        >>> Dataset.from_pandas(frame)[0]
        <a.jpg (train), tags: cat, dog>
        """
        from tagfill.formats import tags

        return tags.read(frame, root=photos, **{"progress": NOTEBOOK, **options}).replace(name=name)

    @classmethod
    def from_polars(
        cls,
        frame: polars.DataFrame,
        photos: str | os.PathLike[str] | None = None,
        *,
        name: str = "tags",
        **options: Any,
    ) -> Dataset:
        """Build a dataset from a Polars data frame; everything else is as in `from_pandas`.

        >>> import polars
        >>> Dataset.from_polars(polars.DataFrame({"file": ["a.jpg", "b.jpg"], "tags": [["cat", "dog"], ["cat"]]}))[0]
        <a.jpg (train), tags: cat, dog>
        """
        from tagfill.formats import tags

        return tags.read(pa.table(frame), root=photos, **{"progress": NOTEBOOK, **options}).replace(name=name)

    def to_pandas(self, split: str | None = None, *, per_class: bool = False) -> pandas.DataFrame:
        """Return a data frame with one row per image: `image`, `split`, `tags` (a list), and `complete`.

        Args:
            split: all images if None.
            per_class: a column per class instead of the last two: 1 present, 0 absent, and `<NA>` unknown.

        Raises:
            TagfillError: if pandas is not installed; it is the extra `pandas`.
        """
        return notebook.to_data_frame(self, split, per_class)

    def to_polars(self, split: str | None = None, *, per_class: bool = False) -> polars.DataFrame:
        """Return the same as `to_pandas` as a Polars data frame; unknown labels are null.

        Raises:
            TagfillError: if Polars is not installed; it is the extra `polars`.
        """
        return notebook.to_polars(self, split, per_class)

    def with_records(self, rows: Sequence[Mapping[str, Any]]) -> Dataset:
        """Return a copy, not saved yet, with these rows added.

        Args:
            rows: as in `from_records`. Of two rows about the same image and label, the later `time` decides.
        """
        more = pa.concat_tables([self.rows(), from_records(rows)])
        return self.replace(annotations=more, folder=None)

    def save(self, folder: str | os.PathLike[str], *, tables: str = "parquet") -> Dataset:
        """Write the dataset folder and open it; an older dataset in it is replaced whole or not at all.

        Args:
            folder: created if it does not exist; tables of the other file type in it are removed.
            tables: `parquet`, or `csv` to write `images.csv` and `annotations.csv`.
        """
        _write_folder(self, Path(folder), tables)
        return Dataset.open(folder)

    def replace(self, **changes: Any) -> Dataset:
        """Return a copy with some attributes changed."""
        return replace(self, **changes)

    def __len__(self) -> int:
        return int(self.images.num_rows)

    @overload
    def __getitem__(self, at: SupportsIndex) -> ImageRecord: ...
    @overload
    def __getitem__(self, at: slice) -> list[ImageRecord]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> ImageRecord | list[ImageRecord]:
        """The image at a position of the image table, or the images of a slice."""
        if isinstance(at, slice):
            return notebook.records(self, range(len(self))[at])
        position = operator.index(at)
        if not -len(self) <= position < len(self):
            raise IndexError(f"Dataset {self.name} has {len(self):,} images; there is no image {position}.")
        return notebook.records(self, [position % len(self)])[0]

    def __iter__(self) -> Iterator[ImageRecord]:
        for start in range(0, len(self), 256):
            yield from self[start : start + 256]

    def show(self, split: str | None = None, *, count: int = 12, columns: int = 4) -> Image.Image | None:
        """Show photos with their tags as one picture: below the cell of a notebook, or returned in a script.

        Args:
            split: to take them from; by default all images.
            count: number of photos, spread over the images that have tags.
            columns: photos in a row.

        Example:
            `dataset.show("train").save("photos.png")` in a script.
        """
        return notebook.dataset_sheet(self, split, count, columns)

    def __repr__(self) -> str:
        return notebook.dataset_text(self)

    def _repr_html_(self) -> str:
        from tagfill.images.notebook import never_raises

        return never_raises(notebook.dataset_html)(self)

    @cached_property
    def splits(self) -> dict[str, NDArray[np.int64]]:
        """Rows of the image table that belong to each split; splits are in order of appearance."""
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
        """The split of each image: a new array, which can be edited and passed to `with_splits`."""
        return np.array(self.images["split"].to_pylist(), dtype=object)

    def with_splits(self, splits: Sequence[str] | NDArray[np.object_]) -> Dataset:
        """Return a copy with its images split differently.

        Args:
            splits: N names, one per image.
        """
        column = self.images.schema.get_field_index("split")
        field = self.images.schema.field(column)
        return self.replace(images=self.images.set_column(column, field, pa.array(list(splits), pa.string())))

    def names(self, rows: NDArray[np.integer] | None = None) -> list[str]:
        """Names of all images, or of these rows of the image table."""
        column = self.images["image"]
        names: list[str] = (column if rows is None else column.take(pa.array(rows))).to_pylist()
        return names

    def scan(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Stream the annotation rows in batches; repetitive text may be dictionary-encoded.

        Args:
            columns: those to read; all by default.
        """
        if isinstance(self.annotations, Path):
            _check_rows(self)
            yield from tables.stream_table(self.annotations, SCHEMA, columns)
            return
        tables.check_columns(self.annotations.schema.names, SCHEMA, self.where())
        wanted = tables.select_fields(SCHEMA, columns)
        present = tables.present_columns(wanted.names, self.annotations.schema.names, SCHEMA)
        for batch in self.annotations.select(present).to_batches(max_chunksize=tables.BATCH_ROWS):
            yield tables.to_schema(batch, wanted, self.where())

    def rows(self) -> pa.Table:
        """All annotation rows as one table."""
        return pa.Table.from_batches(
            [tables.decode_dictionaries(batch, SCHEMA) for batch in self.scan()], schema=SCHEMA
        )

    def labels(self, split: str | None = None, *, conflict: str | None = None) -> LabelMatrix:
        """Known labels of the images of a split, or of all images; resolved from the rows once and kept in memory.

        Args:
            split: all images if None; they are in the order of the image table.
            conflict: `error` or `majority`, instead of the dataset's own setting.

        Raises:
            DatasetError: if rows contradict each other; the rows are named. The rules are in
                `tagfill.dataset.resolve` and `tagfill.dataset.hierarchy`.
        """
        conflict = conflict or self.conflict
        if (split, conflict) not in self._labels:
            of_all = self._labels.get((None, conflict))
            self._labels[split, conflict] = (
                resolve.resolve_labels(self, split, conflict)
                if of_all is None or split is None
                else of_all.take(self.split(split))
            )
        return self._labels[split, conflict]

    @cached_property
    def _labels(self) -> dict[tuple[str | None, str], LabelMatrix]:
        return {}

    @cached_property
    def identities(self) -> dict[str, str]:
        """Hashes of the images, the classes and the labels; see `tagfill.dataset.identity`."""
        return identity.identities(self)

    def where(self, table: str = "annotations") -> str:
        """The file of a table (`annotations`, `images` or `dataset`), as error messages name it."""
        if table == "annotations" and isinstance(self.annotations, Path):
            return str(self.annotations)
        if self.folder is None or table == "annotations":
            return f"the {table} of {self.name}" if table != "dataset" else self.name
        return str(self.folder / description.FILE if table == "dataset" else tables.find_table(self.folder, table))


def add_images(folder: str | os.PathLike[str], names: Sequence[str], *, split: str = "train") -> Dataset:
    """Append images without annotations to a dataset folder and open it.

    Only the table of images is replaced, in one step, and the images that were there keep their rows.

    Args:
        folder: of the dataset.
        names: paths below its image root; images that it has already are skipped.
        split: of the new images.

    >>> add_images("my-data", ["new/1.jpg"], split="train")  # doctest: +SKIP
    """
    folder = Path(folder)
    Dataset.open(folder)  # raises before the lock creates a folder
    with exclusive_lock(folder, "is adding images", wait=_WAIT):
        dataset = Dataset.open(folder)
        known = set(dataset.names())
        records = [{"image": name, "split": split} for name in dict.fromkeys(names) if name not in known]
        if records:
            images = pa.concat_tables([dataset.images, from_records(records, IMAGES_SCHEMA)])
            replace_table(dataset, "images", images.to_batches())
    return Dataset.open(folder)


def replace_table(dataset: Dataset, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Replace one table of a dataset folder, together with its checksum.

    Args:
        dataset: opened from its folder; open it again afterwards.
        name: `images` or `annotations`.
        batches: all rows of the new table.
    """
    folder = dataset.folder
    if folder is None:
        raise ValueError("only a dataset on disk has a table to replace")
    path, schema = tables.find_table(folder, name), SCHEMA if name == "annotations" else IMAGES_SCHEMA

    def write(staging: Path) -> None:
        with (staging / path.name).open("wb") as file:
            tables.table_writer(path.suffix[1:])(file, batches, schema)
        if str(path) in dataset.checksums:
            sums = {path.name: sha256(staging / path.name)}
            (staging / description.FILE).write_bytes(description.with_checksums(folder, sums))

    with exclusive_lock(folder, "is writing a dataset", wait=_WAIT, reentrant=True):
        replace_files(folder, write)


def image_root(root: str | os.PathLike[str]) -> Path | str:
    """The image root: a URL unchanged, anything else as a path.

    >>> image_root("s3://bucket/photos/"), image_root("my/photos") == Path("my/photos")
    ('s3://bucket/photos/', True)
    """
    text = os.fspath(root)
    return text if "://" in text else Path(text)


def local_root(root: str | os.PathLike[str], purpose: str) -> Path:
    """The image root as a local path.

    Args:
        root: of a dataset.
        purpose: what needs local files; the subject of the error message.

    Raises:
        DatasetError: if the root is a URL.
    """
    found = image_root(root)
    if isinstance(found, str):
        raise DatasetError(
            f"{purpose} needs image files on this machine, but the image root is {found}; "
            "download the images and make their folder the root of the dataset."
        )
    return found


_WAIT = 60.0  # seconds for another process that writes the same folder


def _read_folder(folder: Path) -> dict[str, Any]:
    """Attributes of the dataset in a folder; only the header of the annotations file is read."""
    _finish_replacing(folder)
    while True:
        stamp = _stamp(folder)
        content = description.read_description(folder)
        try:
            found = _read_tables(folder, content)
        except DatasetError:
            if stamp == _stamp(folder):
                raise
        else:
            if stamp == _stamp(folder):  # not replaced meanwhile
                return found
        _finish_replacing(folder)


def _read_tables(folder: Path, content: description.Description) -> dict[str, Any]:
    rows, images = tables.find_table(folder, "annotations"), tables.find_table(folder, "images")
    sums = {str(folder / name): checksum for name, checksum in content.checksums.items()}
    tables.check_table(rows, SCHEMA)
    tables.check_table(images, IMAGES_SCHEMA)
    _check_sum(images, sums.get(str(images)))
    return {
        "name": content.name,
        "root": _resolved(image_root(content.root), folder),
        "classes": tuple(content.classes),
        "images": tables.read_table(images, IMAGES_SCHEMA),
        "annotations": rows,
        "hierarchy": tuple((child, parent) for child, parent in content.hierarchy),
        "truth": None if content.truth is None else _resolved(Path(content.truth), folder),
        "protocol": content.protocol,
        "folder": folder,
        "conflict": content.conflict,
        "checksums": sums,
    }


def _finish_replacing(folder: Path) -> None:
    """Finish what a killed process began; wait for one that is alive."""
    if not is_replacing(folder):
        return
    try:
        with exclusive_lock(folder, "is writing a dataset", wait=_WAIT, reentrant=True):
            finish_replacing(folder)
    except OSError as error:
        raise DatasetError(
            f"{folder} was being replaced when the process that did it ended, and this cannot be finished "
            f"({error.strerror}); open it once with permission to write."
        ) from None


def _stamp(folder: Path) -> tuple[int, ...]:
    """What changes when the folder is replaced; nothing of a folder that is no dataset."""
    try:
        status = (folder / description.FILE).stat()
    except OSError:  # reading it says what is wrong
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size, is_replacing(folder)


def _check_sum(path: Path, expected: str | None) -> None:
    """Raise if a file differs from its checksum."""
    if expected is None:
        return
    status = path.stat()
    if _sha256(path, (status.st_ino, status.st_size, status.st_mtime_ns)) != expected:
        raise DatasetError(
            f"{path} differs from its checksum in {description.FILE}: it was damaged, or changed by another program; "
            "take another copy, or remove its line from 'checksums' if the change was intended."
        )


def _check_rows(dataset: Dataset) -> None:
    """Raise if the annotations differ from their checksum; rows may be added after the dataset was opened."""
    path = Path(dataset.annotations)
    expected = dataset.checksums.get(str(path))
    try:
        _check_sum(path, expected)
    except DatasetError:
        _finish_replacing(path.parent)
        now = description.read_description(path.parent).checksums
        if now.get(path.name) == expected:
            raise
        _check_sum(path, now.get(path.name))
        if now.get("images.parquet") != dataset.checksums.get(str(path.parent / "images.parquet")):
            raise DatasetError(
                f"The dataset in {path.parent} was replaced after it was opened; open it again."
            ) from None


@lru_cache(maxsize=256)
def _sha256(path: Path, stamp: tuple[int, ...]) -> str:
    """SHA-256 of a file, computed again only when the file changes."""
    return sha256(path)


def _write_folder(dataset: Dataset, folder: Path, file_type: str) -> None:
    """Replace the three files together, and remove tables of the other file type."""
    write_table = tables.table_writer(file_type)
    images_file, rows_file = f"images.{file_type}", f"annotations.{file_type}"

    def write(staging: Path) -> None:
        with (staging / images_file).open("wb") as file:
            write_table(file, dataset.images.to_batches(), IMAGES_SCHEMA)
        with (staging / rows_file).open("wb") as file:
            write_table(file, dataset.scan(), SCHEMA)
        content = _content(dataset, folder)
        if file_type == "parquet":  # CSV files are for editing
            content["checksums"] = {name: sha256(staging / name) for name in (images_file, rows_file)}
        (staging / description.FILE).write_bytes(description.dump_description(content))

    with exclusive_lock(folder, "is writing a dataset", choose="--out", wait=_WAIT, reentrant=True):
        replace_files(folder, write)


def _content(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """The content of `dataset.yaml`."""
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
    """A path relative to `folder`, so that both can be moved together; a URL unchanged."""
    return path if isinstance(path, str) else os.path.relpath(path.absolute(), folder.absolute())


def _resolved(path: Path | str, folder: Path) -> Path | str:
    """The inverse of `_relative`."""
    return path if isinstance(path, str) else Path(os.path.normpath(folder / path))
