"""A long table: one row per annotated label of an image.

    image,label,value,split
    shop/007.jpg,"cup, red",1,train
    shop/007.jpg,spoon,0,train
    shop/007.jpg,fork,,train
    shop/008.jpg,,,test

`value` is 1 or true (present), 0 or false (absent), or blank (cannot tell). A row without a label lists an image
without annotations. Without a `value` column every row means present, and `absent_means` says what the labels are that
an image does not list. `split` may be missing too. CSV, TSV and Parquet files are read and written.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.dataset import Dataset, tables
from tagfill.dataset.dataset import image_root
from tagfill.dataset.lookup import GrowingArray, TextNumbers
from tagfill.errors import DatasetError, TagfillWarning
from tagfill.formats import image_files, text_files
from tagfill.formats.dataset_builder import DatasetBuilder, class_name_problems, resolve_absent_means
from tagfill.io import atomic_write, spreadsheet_cell
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, expand_ranges
from tagfill.progress import SILENT, Bar, Progress

TITLE = "Long table (CSV, TSV, Parquet): image, label, value, split"

_STATES: dict[str, bool | None] = {
    **dict.fromkeys(["1", "1.0", "true"], True),
    **dict.fromkeys(["0", "0.0", "false"], False),
    **dict.fromkeys(["", "nan", "none", "null"], None),
}
_BATCH_ROWS = 1 << 18  # of text
_PARQUET_ROWS = 1 << 20
_NO_PATH = r"^$|^/|(^|/)\.\.(/|$)|\x00"  # what `check_image_path` may refuse


def read(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    classes: Sequence[str] | None = None,
    image_column: str = "image",
    label_column: str = "label",
    value_column: str = "value",
    split_column: str = "split",
    split: str = "train",
    delimiter: str | None = None,
    separator: str | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Read a long table; a warning names classes that look like several, or like each other.

    Args:
        source: the file.
        root: where the images are, a folder or a URL; by default the folder of the file.
        absent_means: what the labels are that an image does not list, `unknown` or `absent`; required if there is no
            value column.
        classes: their names in order; by default those of the file, sorted.
        image_column: the column with the path of an image below the root.
        label_column: the column with a class name.
        value_column: the column with 1, 0 or blank.
        split_column: the column with the split of an image.
        split: of all images if there is no split column.
        delimiter: between cells; by default a comma, or a tab in `.tsv` files.
        separator: between the labels of a cell, such as `;`; by default a cell is one label.
        progress: told about each megabyte.

    Raises:
        DatasetError: `absent_means` is missing, or the file is damaged or contradicts itself.
    """
    path = Path(source)
    if separator == "":
        raise DatasetError("separator is empty; give the text between labels, or leave it out.")
    table = _Table(path, (image_column, label_column, value_column, split_column), delimiter)
    found = _Contents(path, split, separator)
    for batch in table.batches(progress):
        found.add(batch)
    names = tuple(sorted(found.labels) if classes is None else classes)
    listed = frozenset(names)
    if unlisted := [label for label in found.labels if label not in listed]:
        problem = f"label '{unlisted[0][:60]}', which is not among the classes given"
        raise text_files.line_error(path, found.labels[unlisted[0]], problem, "add it to them or drop the line")
    if absent_means is not None or not table.has_value:
        absent_means = resolve_absent_means(
            absent_means, path, images=len(found.images), classes=len(names), present=found.listed
        )
    builder = DatasetBuilder(path.stem, path.parent if root is None else image_root(root), names, source="csv")
    builder.add_images(found.image_table())
    mentioned: dict[str, set[str]] = {image: set() for image in found.names()} if absent_means == "absent" else {}
    for batch in table.batches(progress):
        image, label, present = batch.annotations(separator)
        builder.add_rows({"image": image, "label": label, "present": present})
        if mentioned:
            for name, its_label in zip(image.to_pylist(), label.to_pylist(), strict=True):
                mentioned[name].add(its_label)
    for name, its_labels in mentioned.items():
        builder.mark_rest_absent(name, its_labels)
    for sentence in class_name_problems(names, separator_can_be_given=separator is None):
        warnings.warn(sentence, TagfillWarning, stacklevel=2)
    return builder.build()


def _split_labels(cell: str, separator: str | None) -> list[str]:
    """Return the labels of a cell; none if it is blank."""
    if separator is None:
        return [cell] if cell else []
    return [label.strip() for label in cell.split(separator) if label.strip()]


@dataclass(frozen=True)
class _Cells:
    """A column of some rows.

    Attributes:
        words: the distinct cells, in the order in which they appear.
        codes: the position of each row's cell among them.
        first: the first row with each of them.
    """

    words: pa.Array
    codes: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of(cls, column: pa.Array) -> _Cells:
        """The cells of a column of any type, as text; null is blank."""
        coded = _as_text(column)
        indices = coded.indices.to_numpy(zero_copy_only=False)
        seen = np.full(len(coded.dictionary), len(indices), dtype=np.int64)
        seen[indices[::-1]] = np.arange(len(indices))[::-1]  # the last assignment counts, that of the first row
        used = np.flatnonzero(seen < len(indices))
        used = used[np.argsort(seen[used])]
        position = np.empty(len(seen), dtype=np.int64)
        position[used] = np.arange(len(used))
        return cls(coded.dictionary.take(pa.array(used)), position[indices], seen[used])

    def column(self) -> pa.DictionaryArray:
        """The column, dictionary-encoded."""
        return pa.DictionaryArray.from_arrays(pa.array(self.codes.astype(np.int32)), self.words)


def _as_text(column: pa.Array) -> pa.DictionaryArray:
    """A column as dictionary-encoded text without nulls; numbers are written as Python writes them."""
    if pa.types.is_boolean(column.type):
        codes = column.cast(pa.int8()).fill_null(2)
        return pa.DictionaryArray.from_arrays(codes, pa.array(["False", "True", ""]))
    if pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type):
        words, blank = column.dictionary, len(column.dictionary)
        words.validate(full=True)  # that it is UTF-8
        words = pa.concat_arrays([words.fill_null(""), pa.array([""])])
        return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()).fill_null(blank), words)
    if not pa.types.is_string(column.type):
        column = pa.array(["" if cell is None else str(cell) for cell in column.to_pylist()], pa.string())
    column.validate(full=True)
    return column.fill_null("").dictionary_encode()


@dataclass(frozen=True)
class _Batch:
    """Consecutive rows of a table; without a column, value and split are None.

    Attributes:
        numbers: line or row number of each.
    """

    numbers: NDArray[np.int64]
    image: _Cells
    label: _Cells
    value: _Cells | None
    split: _Cells | None

    def annotations(self, separator: str | None) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Image, label and state of each label that the rows list; all cells were checked before."""
        cells = [_split_labels(cell, separator) for cell in self.label.words.to_pylist()]
        labels = pa.array([label for cell in cells for label in cell], pa.string())
        sizes = np.array([len(cell) for cell in cells], dtype=np.int64)
        place, row = expand_ranges((np.cumsum(sizes) - sizes)[self.label.codes], sizes[self.label.codes])
        image = self.image.column().take(pa.array(row))
        label = pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), labels)
        if self.value is None:
            return image, label, pa.array(np.ones(len(row), dtype=bool))
        states = pa.array([_STATES[cell.strip().lower()] for cell in self.value.words.to_pylist()], pa.bool_())
        return image, label, states.take(pa.array(self.value.codes[row]))


class _Contents:
    """Checks the rows of a table, and collects its images, their splits, and its labels.

    Args:
        path: of the table, for errors.
        split: of images without one.
        separator: between the labels of a cell.

    Attributes:
        images: numbers of the images, in the order in which they appear.
        labels: the first line that lists each label.
        listed: how many labels are listed, each as often as it occurs.
    """

    def __init__(self, path: Path, split: str, separator: str | None) -> None:
        self._path, self._split, self._separator = path, split, separator
        self.images = TextNumbers()
        self.labels: dict[str, int] = {}
        self.listed = 0
        self._names: list[pa.Array] = []
        self._splits: dict[str, int] = {}
        self._split_of_image = GrowingArray(np.int32)

    def add(self, batch: _Batch) -> None:
        """Check more rows; raise about the first one that is wrong."""
        known = len(self.images)
        number = self.images.add(batch.image.words)
        problems = [*self._image_problems(batch, number, known), *self._value_problems(batch)]
        if problems:
            raise min(problems, key=lambda problem: problem[0])[1]
        occurrences = np.bincount(batch.label.codes, minlength=len(batch.label.words))
        for cell, first, times in zip(batch.label.words.to_pylist(), batch.label.first, occurrences, strict=True):
            for name in _split_labels(cell, self._separator):
                self.labels.setdefault(name, int(batch.numbers[first]))
                self.listed += int(times)

    def image_table(self) -> dict[str, pa.ChunkedArray | pa.Array]:
        """The columns of the image table."""
        splits = pa.array(list(self._splits), pa.string())
        return {
            "image": pa.chunked_array(self._names, pa.string()),
            "split": pa.DictionaryArray.from_arrays(pa.array(self._split_of_image.whole()), splits),
        }

    def names(self) -> Iterator[str]:
        """The images."""
        return (name for part in self._names for name in part.to_pylist())

    def _image_problems(
        self, batch: _Batch, number: NDArray[np.int64], known: int
    ) -> Iterator[tuple[int, DatasetError]]:
        """Take the new images; yield the first that is no path below the root, and the first that changes its split.

        Args:
            batch: the rows.
            number: of each of its image cells.
            known: how many images there were before.
        """
        new = np.flatnonzero(number >= known)
        self._names.append(batch.image.words.take(pa.array(new)))
        suspicious = pc.match_substring_regex(self._names[-1], _NO_PATH)
        for at in new[np.flatnonzero(suspicious.to_numpy(zero_copy_only=False))]:
            line = int(batch.numbers[batch.image.first[at]])
            try:
                image_files.check_image_path(batch.image.words[int(at)].as_py(), f"{self._path}, line {line}")
            except DatasetError as error:
                yield line, error
                break
        split = self._split_of_rows(batch)
        self._split_of_image.add(split[batch.image.first[new]])
        before = self._split_of_image.view()[number[batch.image.codes]]
        if len(wrong := np.flatnonzero(before != split)):
            row = int(wrong[0])
            names, image = list(self._splits), batch.image.words[int(batch.image.codes[row])].as_py()
            here, there = names[split[row]], names[before[row]]
            problem = f"image '{image[:200]}' in split '{here[:60]}', but it was in '{there[:60]}' before"
            line = int(batch.numbers[row])
            yield line, text_files.line_error(self._path, line, problem, "an image belongs to one split")

    def _split_of_rows(self, batch: _Batch) -> NDArray[np.int32]:
        """The number of the split of each row."""
        cells = [""] if batch.split is None else batch.split.words.to_pylist()
        codes = [self._splits.setdefault(cell or self._split, len(self._splits)) for cell in cells]
        rows = np.zeros(len(batch.numbers), dtype=np.int64) if batch.split is None else batch.split.codes
        return np.array(codes, dtype=np.int32)[rows]

    def _value_problems(self, batch: _Batch) -> Iterator[tuple[int, DatasetError]]:
        """The first value that is no state, and the first one without a label."""
        if batch.value is None:
            return
        states = []
        for cell, first in zip(batch.value.words.to_pylist(), batch.value.first, strict=True):
            number = int(batch.numbers[first])
            try:
                states.append(_STATES[cell.strip().lower()] is not None)
            except KeyError:
                remedy = "1 or true is present, 0 or false absent, blank cannot tell"
                yield number, text_files.line_error(self._path, number, f"value '{cell[:40]}'", remedy)
                return
        blank = pc.equal(batch.label.words, "").to_numpy(zero_copy_only=False)[batch.label.codes]
        if len(wrong := np.flatnonzero(np.array(states)[batch.value.codes] & blank)):
            number = int(batch.numbers[wrong[0]])
            value = batch.value.words[int(batch.value.codes[wrong[0]])].as_py()
            yield (
                number,
                text_files.line_error(self._path, number, f"value '{value}' without a label", "name the label"),
            )


class _Table:
    """The rows of a file as text, many at a time."""

    def __init__(self, path: Path, columns: Sequence[str], delimiter: str | None) -> None:
        self.path, self.delimiter = text_files.require_file(path, "a table"), delimiter
        self.is_parquet = path.suffix.lower() in (".parquet", ".pq")
        header = self._header()
        text_files.require_distinct_columns(path, [name for name in header if name in columns])
        for column in columns[:2]:
            if column not in header:
                raise DatasetError(
                    f"{path} has no column '{column}', its columns are {', '.join(header)}; name the right ones with "
                    "image_column= and label_column=."
                )
        self._places = [header.index(name) if name in header else None for name in columns]
        self.has_value = self._places[2] is not None

    def batches(self, progress: Progress) -> Iterator[_Batch]:
        """Stream all rows except the header."""
        for numbers, columns in self._parquet(progress) if self.is_parquet else self._text(progress):
            image, label, value, split = (None if at is None else columns[at] for at in self._places)
            assert image is not None
            assert label is not None
            yield _Batch(numbers, image, label, value, split)

    def _header(self) -> list[str]:
        if not self.is_parquet:
            return [name.strip() for name in next(text_files.read_table(self.path, self.delimiter))[1]]
        try:
            names: list[str] = pq.read_schema(self.path).names
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._parquet_error(error) from None
        return names

    def _text(self, progress: Progress) -> Iterator[tuple[NDArray[np.int64], dict[int, _Cells]]]:
        rows = text_files.read_table(self.path, self.delimiter, progress)
        next(rows)
        while part := list(itertools.islice(rows, _BATCH_ROWS)):
            columns = list(zip(*(row for _, row in part), strict=True))
            used = [at for at in self._places if at is not None]
            yield (
                np.array([number for number, _ in part], dtype=np.int64),
                {at: _Cells.of(pa.array(columns[at], pa.string())) for at in used},
            )

    def _parquet(self, progress: Progress) -> Iterator[tuple[NDArray[np.int64], dict[int, _Cells]]]:
        number = 0
        try:
            found = pq.read_schema(self.path)
            text = [field.name for field in found if pa.types.is_string(field.type)]
            with (
                pq.ParquetFile(self.path, read_dictionary=text) as file,
                progress.bar(f"Reading {self.path.name}", file.metadata.num_rows, "rows") as bar,
            ):
                for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                    numbers = np.arange(number, number + batch.num_rows)
                    yield numbers, {at: _Cells.of(batch.column(at)) for at in self._places if at is not None}
                    number += batch.num_rows
                    bar.advance(batch.num_rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._parquet_error(error) from None

    def _parquet_error(self, error: Exception) -> DatasetError:
        return DatasetError(f"{self.path} cannot be read as Parquet: {tables.first_line(error)[:200]}.")


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    spreadsheet: bool = False,
    progress: Progress = SILENT,
) -> None:
    """Write a long table of all labels that are known: present, absent and cannot tell.

    Locations become labels of their image. To read the table back, give `read` the classes in their order, since it
    cannot know that order, nor classes that no image mentions.

    Args:
        dataset: to be written.
        target: the file; its name ends in `.csv`, `.tsv` or `.parquet`.
        spreadsheet: write an apostrophe before names that begin with `=` `+` `-` or `@`, which a spreadsheet would run
            as formulas; it stays there when the table is read again.
        progress: told about each image.
    """
    path = Path(target)
    if path.suffix.lower() not in (".csv", ".tsv", ".parquet"):
        raise DatasetError(f"{path} is not a name for a long table; it should end in .csv, .tsv or .parquet.")
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        if path.suffix.lower() == ".parquet":
            records = [(*row[:2], _STATES[row[2]], row[3]) for row in _known_rows(dataset, bar)]
            fields = [("image", pa.string()), ("label", pa.string()), ("value", pa.bool_()), ("split", pa.string())]
            columns = zip(*records, strict=True) if records else [()] * 4
            arrays = [pa.array(list(column), kind) for column, (_, kind) in zip(columns, fields, strict=True)]
            pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), file)
        else:
            delimiter = text_files.delimiter_for(path)
            file.write(text_files.csv_line(["image", "label", "value", "split"], delimiter))
            protect = spreadsheet_cell if spreadsheet else str
            for row in _known_rows(dataset, bar):
                file.write(text_files.csv_line([protect(cell) for cell in row], delimiter))


def _known_rows(dataset: Dataset, bar: Bar) -> Iterator[tuple[str, str, str, str]]:
    """Iterate over image, label, value and split of each row to be written."""
    labels = dataset.labels()
    words = {POSITIVE: "1", NEGATIVE: "0", UNKNOWN: ""}
    for at, record in enumerate(dataset.images.select(["image", "split"]).to_pylist()):
        entries = slice(int(labels.starts[at]), int(labels.starts[at + 1]))
        known = list(zip(labels.classes[entries].tolist(), labels.values[entries].tolist(), strict=True))
        if not known:
            yield record["image"], "", "", record["split"]
        for label, value in known:
            yield record["image"], dataset.classes[label], words[value], record["split"]
        bar.advance()
