"""A table of tags as people have them: columns, delimiter and separator are found, and what was understood is shown.

    image,tag          file;keywords              photo,cat,dog        image,tags,split,complete
    a.jpg,cat          a.jpg;cat, dog             a.jpg,1,             a.jpg,cat|dog,train,1
    a.jpg,dog          b.jpg;cat                  b.jpg,0,1            b.jpg,,train,

CSV, TSV and Parquet files are read, and tables in memory (Arrow, pandas, a mapping of columns). Tags are one per row,
several per cell (separated by `,` `;` `|`, or a JSON list), or one column per class with 1, 0, blank or -1. Tags that
a photo does not list are unknown, unless its `complete` cell is true or `absent_means='absent'`.

A guess that is wrong only shows: a photo column without photos, say. A guess that would make wrong labels is refused,
and the error names the option that decides.

    >>> table = parse({"file": ["a.jpg", "b.jpg"], "keywords": ["cat; dog", "cat"]})
    >>> print(table)
    tags: 2 photos, 2 tags, 1.5 per photo
      photos     'file'
      tags       'keywords', separated by ';'
    >>> table.options
    {'image_column': 'file', 'tag_column': 'keywords', 'separator': ';'}
    >>> table.to_dataset().classes
    ('cat', 'dog')
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, TagfillError, TagfillWarning
from tagfill.formats import image_files, text_files, writer
from tagfill.formats.dataset_builder import DatasetBuilder, check_absent_means, class_name_problems, name_some
from tagfill.formats.photo_lookup import FoundPhotos, list_photos, look_up_photos
from tagfill.formats.tag_columns import JSON, NONE, SEPARATORS, STATE_WORDS, TableCells, find_columns, find_separator
from tagfill.formats.tag_rows import (
    TaggedPhoto,
    collect_photos,
    find_coding,
    found_classes,
    order_classes,
    read_class_columns,
    read_tag_columns,
)
from tagfill.io import atomic_write, spreadsheet_cell
from tagfill.progress import SILENT, Progress

TITLE = "Table of tags (CSV, TSV, Parquet): finds columns, delimiter and separator by itself"


@dataclass(frozen=True)
class TagTable:
    """A table of tags, and how it was understood; `print` shows it.

    Attributes:
        name: of the dataset.
        root: where the photos are.
        classes: the tags, in order.
        photos: one per photo of the table, in order.
        options: what was found, as options of `parse` and `read`; change one to override the guess.
        ignored: columns that are not used.
        warnings: sentences about what may be wrong.
        missing: photos of the table that are not below the root; left out of `photos`. Known after `with_photos`.
        untagged: photos below the root that the table does not name. Known after `with_photos`.
        tag_columns: the columns with tags; none if each class has a column.
    """

    name: str
    root: Path | str
    classes: tuple[str, ...]
    photos: tuple[TaggedPhoto, ...]
    options: dict[str, Any]
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    untagged: tuple[str, ...] = ()
    tag_columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What was understood, in lines for a terminal: sizes, then what each column is."""
        count, options = len(self.photos), self.options
        present = sum(state is True for photo in self.photos for state in photo.states.values())
        lines = {"photos": f"'{options['image_column']}'", "tags": self._where_tags_are()}
        if "value_column" in options:
            lines["value"] = f"'{options['value_column']}'"
        if "split_column" in options:
            splits = Counter(photo.split for photo in self.photos)
            listed = ", ".join(f"{split} {number:,}" for split, number in splits.items())
            lines["split"] = f"'{options['split_column']}': {listed}"
        if complete := sum(photo.complete for photo in self.photos):
            column = f"'{options['complete_column']}': " if "complete_column" in options else ""
            lines["complete"] = f"{column}all tags are given for {_count(complete, 'photo')}"
        if self.ignored:
            lines["not used"] = name_some(self.ignored)
        if self.untagged:
            lines["untagged"] = f"{_count(len(self.untagged), 'more photo')} without a row in the table"
        sizes = f"{_count(count, 'photo')}, {_count(len(self.classes), 'tag')}, {present / max(count, 1):.1f} per photo"
        return "\n".join([f"{self.name}: {sizes}", *(f"  {what:<10} {text}" for what, text in lines.items())])

    def _where_tags_are(self) -> str:
        if "class_columns" in self.options:
            return "one column per tag"
        names, separator = self.tag_columns, self.options["separator"]
        one = "one per row" if len(names) == 1 else "one per cell"
        how = {NONE: one, JSON: "as JSON lists"}.get(separator, f"separated by '{separator}'")
        return f"{name_some(names)}, {how}"

    def with_photos(self, root: str | os.PathLike[str], *, progress: Progress = SILENT) -> TagTable:
        """Return a copy whose photos were looked up below an image root.

        Names are found as they are; else without leading folders, in any case, or with another ending or none, where
        that leads to exactly one photo. Photos that are not found are left out and listed in `missing`; photos that the
        table does not name are listed in `untagged`.

        Args:
            root: a folder, tar shards, a zip file or a URL that can be listed.
            progress: told about shards that have to be indexed.

        Raises:
            DatasetError: there is no photo, or none of those that the table names.
        """
        available = list_photos(root, progress=progress)
        looked_up = look_up_photos([photo.image for photo in self.photos], available, image_root(root))
        found = looked_up.found
        missing = tuple(photo.image for photo in self.photos if photo.image not in found)
        if not found and not looked_up.ambiguous:
            raise DatasetError(
                f"None of the {len(missing):,} photos in column '{self.options['image_column']}', such as "
                f"'{missing[0][:200]}', is below {root}, where there are photos such as '{available[0][:200]}'; check "
                "root=, and that image_column= names the right column."
            )
        named = set(found.values())
        return replace(
            self,
            root=image_root(root),
            photos=tuple(replace(photo, image=found[photo.image]) for photo in self.photos if photo.image in found),
            missing=missing,
            untagged=tuple(name for name in available if name not in named),
            warnings=(*self.warnings, *_lookup_problems(looked_up, len(self.photos), str(root))),
        )

    def to_dataset(self, *, split: str = "train") -> Dataset:
        """Return the dataset, not saved yet; photos without a row come last, without labels.

        Args:
            split: of the photos without a row.
        """
        builder = DatasetBuilder(self.name, self.root, self.classes, source="tags")
        for photo in self.photos:
            image_files.check_image_path(photo.image, self.name)
            builder.add_image(photo.image, photo.split)
            for tag, present in photo.states.items():
                builder.add_row(photo.image, tag, present)
            if photo.complete:
                builder.mark_rest_absent(photo.image, photo.states)
        for image in self.untagged:
            builder.add_image(image, split)
        return builder.build()


def _lookup_problems(photos: FoundPhotos, total: int, root: str) -> list[str]:
    """Sentences about photos of a table that are left out."""
    sentences = []
    if photos.missing:
        sentences.append(
            f"{len(photos.missing):,} of {total:,} photos of the table are not below {root} and are left out: "
            f"{name_some(photos.missing)}."
        )
    if photos.ambiguous:
        name, both = next(iter(photos.ambiguous.items()))
        sentences.append(
            f"{_count(len(photos.ambiguous), 'photo')} of the table could be several files below {root} and are left "
            f"out: '{name[:200]}' could be '{both[0][:200]}' or '{both[1][:200]}'; write names with their folders."
        )
    if photos.repeated:
        sentences.append(
            f"{_count(len(photos.repeated), 'name')} of the table lead to a photo that another name leads to as well, "
            f"and are left out: {name_some(photos.repeated)}; write names with their folders."
        )
    return sentences


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def read(
    source: Any,
    *,
    root: str | os.PathLike[str] | None = None,
    image_column: str | None = None,
    tag_column: str | None = None,
    class_columns: Sequence[str] | None = None,
    value_column: str | None = None,
    split_column: str | None = None,
    complete_column: str | None = None,
    separator: str | None = None,
    delimiter: str | None = None,
    coding: str | None = None,
    absent_means: str | None = None,
    classes: Sequence[str] | None = None,
    split: str = "train",
    progress: Progress = SILENT,
) -> Dataset:
    """Read a table of tags; what was understood is reported to `progress`.

    Args:
        source: the file, or a table in memory (see `parse`).
        root: where the photos are. Photos that the table does not name join without labels, and photos that are not
            there are left out with a warning. By default the folder of the file, in which nothing is looked up.
        image_column: the column with the path or name of a photo.
        tag_column: the column with tags; several, as in `tag1,tag2`, are separated by commas.
        class_columns: the columns that are classes, instead of a column of tags.
        value_column: the column that says whether the tag of a row is present (1), absent (0) or undecided (blank).
        split_column: the column with the split of a photo.
        complete_column: the column that says whether all tags of a photo are given, so that others are absent.
        separator: between the tags of a cell: one or several of `,;|`, any other text, `json` for lists, or `none`.
        delimiter: between cells.
        coding: what 1, 0, -1 and blank mean in columns of classes: `blank`, `canonical`, `observed` or `true`, as in
            the format `wide-csv`.
        absent_means: what tags are that a photo does not list, `unknown` (default) or `absent`.
        classes: the tags in order; by default those of the table, sorted, or in the order of their columns.
        split: of photos for which the table has none.
        progress: told about each megabyte, and what was understood.

    Raises:
        DatasetError: no column of photos or tags was found, a guess could make wrong labels, or the file is damaged.

    Example:
        >>> data = read("tags.csv", root="photos", separator=";")  # doctest: +SKIP
    """
    table = parse(
        source,
        image_column=image_column,
        tag_column=tag_column,
        class_columns=class_columns,
        value_column=value_column,
        split_column=split_column,
        complete_column=complete_column,
        separator=separator,
        delimiter=delimiter,
        coding=coding,
        absent_means=absent_means,
        classes=classes,
        split=split,
        progress=progress,
    )
    if root is not None:
        table = table.with_photos(root, progress=progress)
    progress.say(str(table))
    for sentence in table.warnings:
        warnings.warn(sentence, TagfillWarning, stacklevel=2)
    return table.to_dataset(split=split)


def parse(
    source: Any,
    *,
    image_column: str | None = None,
    tag_column: str | None = None,
    class_columns: Sequence[str] | None = None,
    value_column: str | None = None,
    split_column: str | None = None,
    complete_column: str | None = None,
    separator: str | None = None,
    delimiter: str | None = None,
    coding: str | None = None,
    absent_means: str | None = None,
    classes: Sequence[str] | None = None,
    split: str = "train",
    progress: Progress = SILENT,
) -> TagTable:
    """Find out what a table of tags says, without looking for its photos.

    Args:
        source: a CSV, TSV or Parquet file, an Arrow table, a data frame, or a mapping from column names to columns.
        image_column: see `read` for this and the other options.
        tag_column: see `read`.
        class_columns: see `read`.
        value_column: see `read`.
        split_column: see `read`.
        complete_column: see `read`.
        separator: see `read`.
        delimiter: see `read`.
        coding: see `read`.
        absent_means: see `read`.
        classes: see `read`.
        split: see `read`.
        progress: told about each megabyte.
    """
    cells = TableCells.load(source, delimiter, progress)
    if tag_column is not None and class_columns is not None:
        raise DatasetError("Tags are in tag_column= or in class_columns=; give one of the two.")
    if coding is not None and absent_means is not None:
        raise DatasetError(f"coding='{coding}' already says what is absent; leave absent_means out.")
    if absent_means is not None:
        check_absent_means(absent_means)
    columns = find_columns(cells, image_column, tag_column, class_columns, value_column, split_column, complete_column)
    options: dict[str, Any] = {"image_column": columns.image}
    if cells.delimiter is not None:
        options["delimiter"] = cells.delimiter
    warned: list[str] = []
    if cells.encoding == "cp1252":
        warned.append(
            f"{cells.where} is not UTF-8 and was read as Windows-1252; if names of tags or photos look wrong, save it "
            "as UTF-8."
        )
    if coding is not None and columns.tags:
        column = columns.tags[0]
        raise DatasetError(f"coding= is for columns of classes, but tags are in column '{column}'; leave it out.")
    if separator is not None and not columns.tags:
        raise DatasetError("separator= is for a column of tags, but each class has a column; leave it out.")
    if columns.tags:
        options["tag_column"] = ",".join(columns.tags)
        options["separator"] = find_separator(cells, columns.tags, separator, warned)
        given = read_tag_columns(cells, columns, options["separator"])
    else:
        options["class_columns"] = list(columns.classes)
        states, zero_is_unknown = find_coding(cells, columns.classes, coding, absent_means)
        if zero_is_unknown:
            warned.append(
                "0 was read as unknown, because no cell is blank; absent_means='absent' reads it as absent, if every "
                "0 was checked."
            )
        given = read_class_columns(cells, columns.classes, states)
    found = found_classes(given, columns.classes)
    names = order_classes(cells, found, classes)
    for option in ("value", "split", "complete"):
        if (name := getattr(columns, option)) is not None:
            options[f"{option}_column"] = name
    photos = collect_photos(cells, columns, given, split, absent_means)
    warned += class_name_problems(names, separator_can_be_given=bool(columns.tags))
    return TagTable(
        cells.name,
        cells.folder,
        names,
        photos,
        options,
        ignored=columns.ignored,
        warnings=tuple(warned),
        tag_columns=columns.tags,
    )


# Writing


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    separator: str | None = None,
    absent_means: str | None = None,
    undecided: str = "refuse",
    spreadsheet: bool = False,
    progress: Progress = SILENT,
) -> None:
    """Write a table with one row per photo: image, its tags in one cell, split, and whether all tags are given.

    Args:
        dataset: to be written.
        target: a file that ends in .csv or .tsv.
        separator: between tags; by default `;`, or `json` if a class contains `,` `;` or `|`.
        absent_means: a photo with some absent and some unknown tags is refused; `absent` writes it as complete,
            `unknown` drops what was verified absent.
        undecided: `refuse` tags that are "cannot tell", or `drop` to write them as not given.
        spreadsheet: write an apostrophe before names that begin with `=` `+` `-` or `@`, which a spreadsheet would run
            as formulas; it stays there when the table is read again.
        progress: told about each image.

    Raises:
        DatasetError: the dataset has something that such a table cannot express.
    """
    path = _check_target(target)
    separator = _check_separator(dataset.classes, separator)
    if absent_means is not None:
        check_absent_means(absent_means)
    labels = dataset.labels()
    writer.require_decided(labels, undecided, "A table of tags")
    delimiter = text_files.delimiter_for(path)
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        file.write(text_files.csv_line(["image", "tags", "split", "complete"], delimiter))
        for photo in writer.iter_images(dataset, with_rows=False):
            absent = sum(state is False for state in photo.states.values())
            known = absent + len(photo.present)
            if absent and known < len(dataset.classes) and absent_means is None:
                raise DatasetError(
                    f"A table of tags says that all tags of a photo are given or nothing about the others, but "
                    f"{photo.image} has {absent:,} absent and {len(dataset.classes) - known:,} unknown tags; "
                    "absent_means='absent' writes the unknown ones as absent, absent_means='unknown' drops the absent "
                    "ones, and the formats csv and wide-csv carry both."
                )
            complete = known == len(dataset.classes) or (absent > 0 and absent_means == "absent")
            complete = complete and not (absent and absent_means == "unknown")
            cells = [photo.image, tag_cell(photo.present, separator), photo.split, "1" if complete else ""]
            protected = map(spreadsheet_cell, cells) if spreadsheet else cells
            file.write(text_files.csv_line(protected, delimiter))
            bar.advance()


def write_cells(
    tags: Mapping[str, Sequence[str]],
    target: str | os.PathLike[str],
    *,
    separator: str | None = None,
    spreadsheet: bool = False,
) -> None:
    """Write a table of images and their tags, for tags that are in no dataset, such as predictions.

    Args:
        tags: of each image.
        target: a file that ends in .csv or .tsv.
        separator: between tags; by default `;`, or `json` if a tag contains `,` `;` or `|`.
        spreadsheet: as for `write`.

    Example:
        >>> write_cells({"a.jpg": ["cat", "dog"]}, "tags.csv")  # doctest: +SKIP
    """
    path = _check_target(target)
    separator = _check_separator(sorted({tag for its in tags.values() for tag in its}), separator)
    delimiter = text_files.delimiter_for(path)
    with atomic_write(path) as file:
        file.write(text_files.csv_line(["image", "tags"], delimiter))
        for image, its in tags.items():
            cells = [image, tag_cell(its, separator)]
            protected = map(spreadsheet_cell, cells) if spreadsheet else cells
            file.write(text_files.csv_line(protected, delimiter))


def _check_target(target: str | os.PathLike[str]) -> Path:
    path = Path(target)
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise DatasetError(f"{path} is not a name for a table of tags; it should end in .csv or .tsv.")
    return path


def tag_cell(tags: Sequence[str], separator: str) -> str:
    """Return the cell of several tags.

    >>> tag_cell(["cat", "dog"], ";"), tag_cell(["cup, red"], "json"), tag_cell([], "json")
    ('cat;dog', '["cup, red"]', '')
    """
    if separator == JSON:
        return json.dumps(list(tags), ensure_ascii=False) if tags else ""
    return separator.join(tags)


def _check_separator(classes: Sequence[str], separator: str | None) -> str:
    """Return the separator to write, or raise if a class contains it."""
    if blank := next((name for name in classes if name != name.strip()), None):
        raise DatasetError(f"Class '{blank[:60]}' begins or ends with a blank, which tables of tags do not keep.")
    plain = not any(mark in name for name in classes for mark in (*SEPARATORS, "[", "]"))
    if separator is None:
        return ";" if plain and not any(name.lower() in STATE_WORDS for name in classes) else JSON
    if separator == NONE or not separator:
        raise TagfillError("A table of tags needs a separator; the format csv writes one tag per row.")
    if separator != JSON and (clash := next((name for name in classes if separator in name), None)):
        raise DatasetError(
            f"Class '{clash[:60]}' contains the separator '{separator}'; choose another one, or separator='{JSON}'."
        )
    return separator
