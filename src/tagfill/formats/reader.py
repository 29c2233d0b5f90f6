"""Collecting rows while a file is read: bounded memory, whatever the number of rows.

Rows come one at a time, as whole columns, or as the absences of an exhaustively labelled image. They are buffered,
turned into Arrow tables, and spooled.


What a format leaves unsaid: whether a label that it does not mention is absent, or was never looked at.

Many formats list present labels only, or write 0 for both. Which of the two it is cannot be seen in a file, so a
reader asks for `absent_means`, and a writer refuses to drop a difference unless it is told which side to give up.

Matrices of 0 and 1, images × classes: to rows, and from decided labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import IMAGES_SCHEMA, SCHEMA, Dataset, table
from tagfill.dataset.tables import RowSpool
from tagfill.errors import DatasetError, one_of
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.progress import Bar

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


AbsentMeans = Literal["unknown", "absent"]


def reading(absent_means: str | None, where: object, *, images: int, classes: int, present: int) -> AbsentMeans:
    """The chosen reading, or an error with the counts of both.

    Args:
        absent_means: what the caller was told, if anything.
        where: the file or folder, for the message.
        images: how many it lists.
        classes: how many it has.
        present: (image, label) pairs that it calls present.
    """
    if absent_means is not None:
        return checked(absent_means)
    rest = images * classes - present
    raise DatasetError(
        f"{where} does not say whether a label that is not marked present is absent or unknown: {present:,} of "
        f"{images * classes:,} (image, label) pairs are present, and the other {rest:,} become unknown with "
        "absent_means='unknown' or verified absent with absent_means='absent'; choose one."
    )


def checked(absent_means: str) -> AbsentMeans:
    """The word itself if it is one of the two."""
    one_of("absent_means", absent_means, ["unknown", "absent"])
    return "absent" if absent_means == "absent" else "unknown"


def writing(labels: LabelMatrix, absent_means: str | None, format_name: str) -> None:
    """Refuse to write labels of all three states into a format that lists present labels only.

    Args:
        labels: what is to be written.
        absent_means: how the file will be read: `absent` writes unknown labels as absent ones, `unknown` forgets what
            was verified absent, None loses nothing.
        format_name: for the message.
    """
    if absent_means is not None:
        checked(absent_means)
        return
    absent = int(np.count_nonzero(labels.values == NEGATIVE))
    unknown = count_unknown(labels)
    if absent and unknown:
        raise DatasetError(
            f"{format_name} lists present labels only, but {absent:,} are verified absent and {unknown:,} unknown; "
            "absent_means='absent' writes the unknown ones as absent, absent_means='unknown' forgets the absent ones."
        )


def complete(labels: LabelMatrix, unknown: str, format_name: str, split: str | None = None) -> None:
    """Refuse to write unknown labels into a format that is read as complete, unless they are to become absent.

    Args:
        labels: what is to be written.
        unknown: `refuse`, or `absent` to write them so.
        format_name: for the message.
        split: whose labels they are, if not all, for the message.
    """
    one_of("unknown", unknown, ["refuse", "absent"])
    count = count_unknown(labels)
    if count and unknown == "refuse":
        raise DatasetError(
            f"{format_name} cannot say unknown, but {count:,} of {len(labels) * labels.width:,} labels{_of(split)} "
            "are; unknown='absent' writes them as absent."
        )


def decided(labels: LabelMatrix, undecided: str, format_name: str, split: str | None = None) -> None:
    """Refuse "cannot tell", for a format that knows unknown only as not looked at; `drop` forgets such answers."""
    one_of("undecided", undecided, ["refuse", "drop"])
    count = int(np.count_nonzero(labels.values == UNKNOWN))
    if count and undecided == "refuse":
        raise DatasetError(
            f"{format_name} cannot say 'cannot tell', but {count:,} labels{_of(split)} say it; "
            "undecided='drop' writes them as not looked at."
        )


def count_unknown(labels: LabelMatrix) -> int:
    """Pairs that are neither present nor absent, "cannot tell" among them."""
    known = np.count_nonzero((labels.values == POSITIVE) | (labels.values == NEGATIVE))
    return len(labels) * labels.width - int(known)


def _of(split: str | None) -> str:
    return "" if split is None else f" of split {split}"


_IMAGES_AT_ONCE = 4096


def add_matrix(
    collector: Collector, images: Sequence[str], matrix: NDArray[np.generic], absent_means: str, where: object, bar: Bar
) -> None:
    """Add the rows that an N×L matrix of 0 and 1 stands for.

    Args:
        collector: of the dataset; its classes are the columns.
        images: names of the N images.
        matrix: may be a memory map.
        absent_means: whether 0 is `absent` or `unknown`.
        where: the file, for the message.
        bar: told about each image.
    """
    classes = pa.array(collector.classes, pa.string())
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        block = np.asarray(matrix[start : start + _IMAGES_AT_ONCE])
        odd = np.argwhere((block != 0) & (block != 1))
        if len(odd):
            row, column = odd[0].tolist()
            raise DatasetError(
                f"{where}, row {start + row}, column {column}: found {block[row, column]}; 1 is present, "
                "0 is not, and other values are not known here."
            )
        image, label = np.nonzero(block == 1) if absent_means == "unknown" else np.indices(block.shape).reshape(2, -1)
        names = pa.array(images[start : start + len(block)], pa.string())
        present = np.asarray(block[image, label] == 1, dtype=bool)
        collector.add_rows(
            {
                "image": names.take(pa.array(image)),
                "label": classes.take(pa.array(label)),
                "present": pa.array(present),
            }
        )
        bar.advance(len(block))
