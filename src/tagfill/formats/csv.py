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

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.dataset import Dataset, tables
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, TagfillWarning
from tagfill.formats import image_files, text_files
from tagfill.formats.dataset_builder import DatasetBuilder, class_name_problems, resolve_absent_means
from tagfill.io import atomic_write, spreadsheet_cell
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.progress import SILENT, Bar, Progress

TITLE = "Long table (CSV, TSV, Parquet): image, label, value, split"

_STATES: dict[str, bool | None] = {
    **dict.fromkeys(["1", "1.0", "true"], True),
    **dict.fromkeys(["0", "0.0", "false"], False),
    **dict.fromkeys(["", "nan", "none", "null"], None),
}


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
    splits: dict[str, str] = {}
    labels: dict[str, int] = {}
    listed = 0
    for number, image, label, value, part in table.rows(progress):
        _check_image(path, number, image, part or split, splits)
        for name in _split_labels(label, separator):
            labels.setdefault(name, number)
            listed += 1
        if value is not None and _parse_state(path, number, value) is not None and not label:
            raise text_files.line_error(path, number, f"value '{value}' without a label", "name the label")
    names = tuple(sorted(labels) if classes is None else classes)
    if unlisted := [label for label in labels if label not in set(names)]:
        found = f"label '{unlisted[0][:60]}', which is not among the classes given"
        raise text_files.line_error(path, labels[unlisted[0]], found, "add it to them or drop the line")
    if absent_means is not None or not table.has_value:
        absent_means = resolve_absent_means(absent_means, path, images=len(splits), classes=len(names), present=listed)
    builder = DatasetBuilder(path.stem, path.parent if root is None else image_root(root), names, source="csv")
    for image, part in splits.items():
        builder.add_image(image, part)
    mentioned: dict[str, set[str]] = {image: set() for image in splits} if absent_means == "absent" else {}
    for number, image, label, value, _ in table.rows(progress):
        for name in _split_labels(label, separator):
            builder.add_row(image, name, _parse_state(path, number, value))
            if mentioned:
                mentioned[image].add(name)
    for image, its_labels in mentioned.items():
        builder.mark_rest_absent(image, its_labels)
    for sentence in class_name_problems(names, separator_can_be_given=separator is None):
        warnings.warn(sentence, TagfillWarning, stacklevel=2)
    return builder.build()


def _split_labels(cell: str, separator: str | None) -> list[str]:
    """Return the labels of a cell; none if it is blank."""
    if separator is None:
        return [cell] if cell else []
    return [label.strip() for label in cell.split(separator) if label.strip()]


class _Table:
    """The rows of a file as text: number, image, label, value and split; the last two are None without a column."""

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
        self.image, self.label = header.index(columns[0]), header.index(columns[1])
        self.value, self.split = [header.index(name) if name in header else None for name in columns[2:]]
        self.has_value = self.value is not None

    def rows(self, progress: Progress) -> Iterator[tuple[int, str, str, str | None, str | None]]:
        """Iterate over all rows except the header."""
        for number, row in self._parquet(progress) if self.is_parquet else self._text(progress):
            value = None if self.value is None else row[self.value]
            split = None if self.split is None else row[self.split]
            yield number, row[self.image], row[self.label], value, split

    def _header(self) -> list[str]:
        if not self.is_parquet:
            return [name.strip() for name in next(text_files.read_table(self.path, self.delimiter))[1]]
        try:
            names: list[str] = pq.read_schema(self.path).names
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._parquet_error(error) from None
        return names

    def _text(self, progress: Progress) -> Iterator[tuple[int, list[str]]]:
        rows = text_files.read_table(self.path, self.delimiter, progress)
        next(rows)
        yield from rows

    def _parquet(self, progress: Progress) -> Iterator[tuple[int, list[str]]]:
        number = 0
        try:
            with (
                pq.ParquetFile(self.path) as file,
                progress.bar(f"Reading {self.path.name}", file.metadata.num_rows, "rows") as bar,
            ):
                for batch in file.iter_batches():
                    columns = [["" if cell is None else str(cell) for cell in column.to_pylist()] for column in batch]
                    for row in zip(*columns, strict=True):
                        yield number, list(row)
                        number += 1
                    bar.advance(batch.num_rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._parquet_error(error) from None

    def _parquet_error(self, error: Exception) -> DatasetError:
        return DatasetError(f"{self.path} cannot be read as Parquet: {tables.first_line(error)[:200]}.")


def _check_image(path: Path, number: int, image: str, split: str, splits: dict[str, str]) -> None:
    if image not in splits:
        image_files.check_image_path(image, f"{path}, line {number}")
    if splits.setdefault(image, split) != split:
        found = f"image '{image[:200]}' in split '{split[:60]}', but it was in '{splits[image][:60]}' before"
        raise text_files.line_error(path, number, found, "an image belongs to one split")


def _parse_state(path: Path, number: int, value: str | None) -> bool | None:
    """Return the state that a cell stands for; without a value column every row means present."""
    if value is None:
        return True
    try:
        return _STATES[value.strip().lower()]
    except KeyError:
        remedy = "1 or true is present, 0 or false absent, blank cannot tell"
        raise text_files.line_error(path, number, f"value '{value[:40]}'", remedy) from None


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
