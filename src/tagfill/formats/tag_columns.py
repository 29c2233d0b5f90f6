"""The layout of a table of tags: its cells as text, its delimiter, what each column is, and the separator of tags.

Everything is found from the names of the columns and from their cells. What is found can be overridden by an option of
the format `tags`; what could make wrong labels is refused, with the name of that option.
"""

from __future__ import annotations

import ast
import csv
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.dataset import tables
from tagfill.errors import DatasetError
from tagfill.formats import text_files
from tagfill.formats.dataset_builder import name_some
from tagfill.formats.photo_lookup import is_photo_name
from tagfill.progress import Progress

SEPARATORS = ";|,"
_RARE_SEPARATORS = {" ": "spaces", "/": "slashes", "+": "plus signs", "&": "ampersands", "#": "hash signs"}
JSON, NONE = "json", "none"  # values of `separator`: cells are JSON lists; each cell is one tag
_DELIMITERS = ",\t;|"
_SAMPLE = 1 << 16  # bytes, to find the delimiter

_IMAGE_NAMES = (
    *("image", "file", "filename", "filepath", "path", "photo", "picture", "img"),
    *("imagename", "imagefile", "imagepath", "photoname", "photopath", "imageid", "images", "files", "photos"),
)
_ONE_TAG = ("tag", "label", "class", "category", "keyword", "classname", "labelname", "tagname")
_NUMBERED_TAGS = re.compile(f"(?:{'|'.join(_ONE_TAG)})s?[0-9]+")
_SEVERAL_TAGS = ("tags", "labels", "classes", "categories", "keywords")
_VALUE_NAMES = ("value", "present")
_SPLIT_NAMES = ("split", "subset", "set", "partition")
_COMPLETE_NAMES = ("complete", "iscomplete", "exhaustive")
_NUMBERING = ("", "id", "index", "unnamed:0")  # columns that count rows, as pandas writes them

STATE_WORDS = {
    **dict.fromkeys(["1", "1.0", "1,0", "true", "yes", "y", "x", "✓", "✔", "☑"], "1"),
    **dict.fromkeys(["0", "0.0", "-0.0", "0,0", "false", "no", "n", "✗", "✘"], "0"),
    **dict.fromkeys(["-1", "-1.0", "-1,0"], "-1"),
    **dict.fromkeys(["", "nan", "none", "null", "na", "n/a", "-"], ""),
    # as spreadsheets in other languages write true and false
    **dict.fromkeys(["wahr", "vrai", "verdadero", "vero", "verdadeiro", "waar", "prawda"], "1"),
    **dict.fromkeys(["falsch", "faux", "falso", "onwaar", "fałsz"], "0"),
}


# The cells of a table


@dataclass(frozen=True)
class TableCells:
    """A table as text: stripped cells, or lists of text for cells that are lists already.

    Attributes:
        where: the file, for messages.
        name: of the dataset.
        folder: of the file.
        unit: what rows are called in messages.
        delimiter: between cells; None if the source is no text.
        numbers: line or row number of each row.
        columns: the cells by column.
        encoding: of the file, if it is text.
    """

    where: str
    name: str
    folder: Path
    unit: str
    delimiter: str | None
    numbers: list[int]
    columns: dict[str, list[Any]]
    encoding: str | None = None

    @classmethod
    def load(cls, source: Any, delimiter: str | None, progress: Progress) -> TableCells:
        """Read a file or convert a table in memory."""
        if not isinstance(source, str | os.PathLike):
            try:
                table = source if isinstance(source, pa.Table) else pa.table(_plain_frame(source))
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise DatasetError(f"The table cannot be read: {tables.first_line(error)[:200]}.") from None
            return cls._of_arrow(table, "The table", "tags", Path())
        path = Path(source)
        text_files.require_file(path, "a table of tags")
        if path.suffix.lower() in (".parquet", ".pq"):
            try:
                table = pq.read_table(path)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DatasetError(f"{path} cannot be read as Parquet: {tables.first_line(error)[:200]}.") from None
            return cls._of_arrow(table, str(path), path.stem, path.parent)
        encoding = text_files.find_encoding(path)
        said, skipped = _spreadsheet_delimiter(path, encoding)
        delimiter = delimiter or said or _find_delimiter(path, encoding)
        rows = text_files.read_table(
            path, delimiter, progress, encoding=encoding, skipped_lines=skipped, fit=_fit_last_cell
        )
        header = [name.strip() for name in next(rows)[1]]
        if any(is_photo_name(name) for name in header):
            raise DatasetError(
                f"The first line of {path} has '{next(filter(is_photo_name, header))[:200]}', which looks like a "
                "photo; put a line with the names of the columns above it, such as image,tags."
            )
        text_files.require_distinct_columns(path, header)
        numbers, content = [], []
        for number, row in rows:
            stripped = [cell.strip() for cell in row]
            # spreadsheets write rows of nothing but delimiters, and files that were joined repeat their header
            if any(stripped) and stripped != header:
                numbers.append(number)
                content.append(stripped)
        columns = {name: [row[at] for row in content] for at, name in enumerate(header)}
        return cls(str(path), path.stem, path.parent, "line", delimiter, numbers, columns, encoding)._checked()

    @classmethod
    def _of_arrow(cls, table: pa.Table, where: str, name: str, folder: Path) -> TableCells:
        header = [str(column) for column in table.column_names]
        if repeated := next((column for column in header if header.count(column) > 1), None):
            raise DatasetError(f"{where} has two columns '{repeated[:60]}'; drop one of them.")
        try:
            columns = {
                column: [_text(value) for value in table.column(at).to_pylist()] for at, column in enumerate(header)
            }
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise DatasetError(f"{where} cannot be read: {tables.first_line(error)[:200]}.") from None
        return cls(where, name, folder, "row", None, list(range(table.num_rows)), columns)._checked()

    def _checked(self) -> TableCells:
        if not self.numbers:
            raise DatasetError(f"{self.where} has no rows below its header; there is nothing to read.")
        return self

    def require(self, column: str, option: str) -> str:
        """Return the name of a column, or raise if there is none."""
        if column not in self.columns:
            listed = ", ".join(f"'{name}'" for name in self.columns)
            raise DatasetError(f"{self.where} has no column '{column}' for {option}=; its columns are {listed}.")
        return column

    def error(self, row: int, found: str, remedy: str) -> DatasetError:
        """The error for one row."""
        return DatasetError(f"{self.where}, {self.unit} {self.numbers[row]}: found {found}; {remedy}.")

    def texts(self, column: str) -> list[str]:
        """The cells of a column as text."""
        return [cell if isinstance(cell, str) else json.dumps(cell) for cell in self.columns[column]]

    def holds_states(self, column: str) -> bool:
        """Whether all cells are 1, 0, -1 or blank, in any spelling."""
        return all(isinstance(cell, str) and cell.lower() in STATE_WORDS for cell in self.columns[column])


def _plain_frame(source: Any) -> Any:
    """A data frame with its index as a column if it has a name, and without it otherwise; anything else unchanged."""
    if not hasattr(source, "reset_index"):
        return source
    frame = source.reset_index(drop=all(name is None for name in source.index.names))
    for column in (name for name, kind in frame.dtypes.items() if kind == "object"):
        if any(isinstance(value, os.PathLike) for value in frame[column]):
            frame[column] = [os.fspath(value) if isinstance(value, os.PathLike) else value for value in frame[column]]
    return frame


def _text(value: Any) -> Any:
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, list | tuple):
        return [str(item).strip() for item in value if item is not None]
    return str(value).strip()


def _spreadsheet_delimiter(path: Path, encoding: str) -> tuple[str | None, int]:
    """Return the delimiter that a first line such as `sep=;` names, which spreadsheets read, and the lines it takes."""
    with path.open("rb") as file:
        first = file.read(16).decode(encoding, errors="replace").lstrip("\ufeff").splitlines()[:1]
    found = re.fullmatch(r'"?sep=(.)"?', first[0]) if first else None
    return (found[1], 1) if found else (None, 0)


def _fit_last_cell(row: list[str], header: list[str], delimiter: str) -> list[str] | None:
    """Tags that are not in quotes, as in `a.jpg,cat,dog` below `image,tags`: the rest of the row is the last cell."""
    if _plain(header[-1]) not in _SEVERAL_TAGS or any(map(is_photo_name, row[len(header) - 1 :])):
        return None
    if len(row) == len(header) - 1:
        return [*row, ""]
    if len(row) < len(header) or delimiter not in SEPARATORS:
        return None
    return [*row[: len(header) - 1], delimiter.join(row[len(header) - 1 :])]


def _find_delimiter(path: Path, encoding: str) -> str:
    """Return the delimiter that splits the header best: into known names, and as many cells as other rows have."""
    with path.open("rb") as file:
        sample = file.read(_SAMPLE)
    lines = sample.decode(encoding, errors="replace").lstrip("\ufeff").splitlines(keepends=True)
    if len(sample) == _SAMPLE:
        lines = lines[:-1]
    usual = text_files.delimiter_for(path)
    scores: dict[str, tuple[int, float, bool]] = {}
    for delimiter in _DELIMITERS:
        try:
            reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
            rows = [row for row in itertools.islice(reader, 100) if row]
        except csv.Error:
            continue
        if rows and len(rows[0]) > 1:
            names = {_plain(name) for name in rows[0]}
            known = len(names & {*_IMAGE_NAMES, *_ONE_TAG, *_SEVERAL_TAGS, *_SPLIT_NAMES})
            same = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
            scores[delimiter] = (known, same, delimiter == usual)
    return max(scores, key=lambda delimiter: scores[delimiter]) if scores else usual


# Columns


@dataclass(frozen=True)
class TagColumns:
    """Which column is what; tags are in columns of tags, of which there may be several, or in columns of classes."""

    image: str
    tags: tuple[str, ...]
    classes: tuple[str, ...]
    value: str | None
    split: str | None
    complete: str | None
    ignored: tuple[str, ...]


def find_columns(
    cells: TableCells,
    image: str | None,
    tag: str | None,
    classes: Sequence[str] | None,
    value: str | None,
    split: str | None,
    complete: str | None,
) -> TagColumns:
    """Return which column is what; columns that are given are only checked."""
    tags: tuple[str, ...]
    chosen: tuple[str, ...]
    image = _find_image_column(cells) if image is None else cells.require(image, "image_column")
    split = _first_named(cells, _SPLIT_NAMES) if split is None else cells.require(split, "split_column")
    if complete is None:
        complete = _first_named(cells, _COMPLETE_NAMES)
    else:
        cells.require(complete, "complete_column")
    others = [name for name in cells.columns if name not in (image, split, complete)]
    if classes is not None:
        for name in classes:
            cells.require(name, "class_columns")
        tags, chosen = (), tuple(classes)
    elif tag is not None:
        tags, chosen = _given_tag_columns(cells, tag), ()
    else:
        tags, chosen = _find_tags(cells, others)
    if tags and value is None:
        value = next(
            (n for n in others if n not in tags and _plain(n) in _VALUE_NAMES and _mostly_states(cells, n)), None
        )
    elif value is not None:
        cells.require(value, "value_column")
    used = {image, split, complete, value, *tags, *chosen}
    unused = tuple(name for name in cells.columns if name not in used)
    return TagColumns(image, tags, chosen, value, split, complete, unused)


def _mostly_states(cells: TableCells, column: str) -> bool:
    """Whether most cells are 1, 0 or blank; others are then errors, and not a reason to ignore the column."""
    texts = cells.texts(column)
    return 2 * sum(text.lower() in STATE_WORDS for text in texts) > len(texts)


def _given_tag_columns(cells: TableCells, tag: str) -> tuple[str, ...]:
    """The column of this name, or the columns of these names, separated by commas."""
    names = (tag,) if tag in cells.columns else tuple(name.strip() for name in tag.split(","))
    return tuple(cells.require(name, "tag_column") for name in names)


def _find_image_column(cells: TableCells) -> str:
    """Return the column whose name, or else whose content, says that it holds photos."""
    shares = {
        name: sum(is_photo_name(cell) for cell in texts) / len(texts)
        for name, texts in ((name, cells.texts(name)) for name in cells.columns)
    }
    named = [name for known in _IMAGE_NAMES for name in cells.columns if _plain(name) == known]
    if named:
        return max(named, key=lambda name: shares[name])  # the first of equals
    filled = [name for name, share in shares.items() if share >= 0.9]
    if len(filled) == 1:
        return filled[0]
    raise DatasetError(
        f"It is not clear which column of {cells.where} names the photos, its columns are {name_some(cells.columns)}; "
        "name it with image_column=."
    )


def _find_tags(cells: TableCells, others: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of tags, or the columns of classes."""
    states = [name for name in others if cells.holds_states(name) and _plain(name) not in _NUMBERING]
    named = [name for name in others if _plain(name) in (*_ONE_TAG, *_SEVERAL_TAGS)]
    words = [name for name in named if name not in states]
    filled = [name for name in named if any(cells.columns[name])]
    if words and len(filled) > 1:
        listed = " and ".join(f"'{name}'" for name in filled)
        raise DatasetError(
            f"{cells.where} has several columns that may hold tags, {listed}; choose one with tag_column=."
        )
    if words:
        return (words[0],), ()
    numbered = tuple(name for name in others if _NUMBERED_TAGS.fullmatch(_plain(name)))
    if len(numbered) > 1 and not all(cells.holds_states(name) for name in numbered):
        return numbered, ()  # tag1, tag2, …
    values = [name for name in states if _plain(name) in _VALUE_NAMES]
    if named and len(states) - len(values) == 1:
        if values or not any(cells.texts(named[0])):  # tags that are called 0 or 1, with a value; or no tags at all
            return (named[0],), ()
        raise DatasetError(
            f"Column '{named[0]}' of {cells.where} holds only 1, 0, -1 or blank; give tag_column={named[0]} if these "
            f"are names of tags, or class_columns=[\"{named[0]}\"] if they say whether '{named[0]}' is present."
        )
    if states:
        return (), tuple(states)
    raise DatasetError(
        f"It is not clear which column of {cells.where} holds tags, its columns are {name_some(cells.columns)}; name "
        f"it with tag_column=, or the columns of classes with class_columns={_odd_cell(cells, others)}."
    )


def _odd_cell(cells: TableCells, others: list[str]) -> str:
    """Part of a sentence: the cell that keeps most columns from being columns of classes, if one does."""
    words = Counter(cell.lower() for name in others for cell in cells.texts(name))
    odd = [(word, count) for word, count in words.most_common() if word not in STATE_WORDS]
    if len(others) > 1 and odd and len(odd) <= 2 and odd[0][1] >= len(others):
        return f", whose cells are 1, 0 or blank and not '{odd[0][0][:40]}'"
    return ""


def _first_named(cells: TableCells, known: Collection[str]) -> str | None:
    return next((name for word in known for name in cells.columns if _plain(name) == word), None)


def _plain(name: str) -> str:
    """A column name without case, blanks, dashes and underscores."""
    return re.sub(r"[\s_\-]+", "", name.casefold())


# Tags in cells


def find_separator(cells: TableCells, columns: Sequence[str], separator: str | None, warned: list[str]) -> str:
    """Return the separator that was given, or the one that the cells of these columns show."""
    if separator is not None:
        if not separator:
            raise DatasetError(f"separator is empty; give the text between tags, '{JSON}' or '{NONE}'.")
        return separator
    column, content = columns[0], [cell for name in columns for cell in cells.columns[name]]
    filled = [cell for cell in content if cell]
    if any(isinstance(cell, list) for cell in content) or (
        filled and all(parse_list(cell) is not None for cell in filled)
    ):
        return JSON
    distinct = {cell for cell in filled if isinstance(cell, str)}
    several = len(columns) == 1 and _plain(column) in _SEVERAL_TAGS
    found = {mark: _evidence(distinct, mark) for mark in SEPARATORS if any(mark in cell for cell in distinct)}
    # a mark separates if the pieces of most cells recur in other cells, or if the column's name is a plural
    separating = [mark for mark, share in found.items() if share >= 0.5 or (several and len(found) == 1)]
    if len(separating) == 1:
        rest = {piece for cell in distinct for piece in split_cell(cell, separating[0])}
        if not any(_evidence(rest, mark) > 0 for mark in found if mark != separating[0]):
            return separating[0]
    elif not separating and not any(found.values()) and not (several and found):
        for mark, least in ((" ", 0.8 if several else 1.1), *((mark, 0.8) for mark in "/+&#")):
            if sum(mark in cell for cell in distinct) > 1 and _evidence(distinct, mark) >= least:
                warned.append(
                    f"Pieces of many cells of column '{column}' recur in other cells; if {_RARE_SEPARATORS[mark]} "
                    f"separate tags, give separator='{mark}'."
                )
                break
        return NONE
    marks = " and ".join(f"'{mark}'" for mark in found)
    example = next(cell for cell in sorted(distinct) if any(mark in cell for mark in found))
    raise DatasetError(
        f"It is not clear whether {marks} in column '{column}' of {cells.where} separates tags, as in "
        f"'{example[:80]}'; give separator='{next(iter(found))}', several marks as in separator='{''.join(found)}', or "
        f"separator='{NONE}' if each cell is one tag."
    )


def _evidence(cells: Collection[str], mark: str) -> float:
    """Share of the distinct cells with this mark of which a piece is also in another cell."""
    pieces = {cell: set(split_cell(cell, mark)) for cell in cells}
    counts = Counter(piece for its in pieces.values() for piece in its)
    marked = [its for cell, its in pieces.items() if mark in cell]
    return sum(any(counts[piece] > 1 for piece in its) for its in marked) / max(len(marked), 1)


def parse_list(cell: Any) -> list[str] | None:
    """Return the tags of a JSON list, or of a list, tuple or set as Python writes it; None if the cell is neither.

    >>> parse_list('["cat", "dog"]'), parse_list("{'dog', 'cat'}"), parse_list("cat")
    (['cat', 'dog'], ['cat', 'dog'], None)
    """
    if isinstance(cell, list):
        return cell
    if cell == "set()":
        return []
    if cell[:1] + cell[-1:] not in ("[]", "()", "{}"):
        return None
    try:
        content = json.loads(cell)
    except (ValueError, RecursionError):
        try:
            content = ast.literal_eval(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    if not isinstance(content, list | tuple | set) or not all(isinstance(item, str | int | float) for item in content):
        return None
    tags = [str(item).strip() for item in content]
    return sorted(tags) if isinstance(content, set) else tags


def split_cell(cell: str, separator: str) -> list[str]:
    """Return the stripped tags of a cell; several of `,;|` each separate.

    >>> split_cell("dog, person;", ",;")
    ['dog', 'person']
    """
    if all(mark in SEPARATORS for mark in separator):
        pieces = re.split(f"[{re.escape(separator)}]", cell)
    else:
        pieces = cell.split(separator)
    return [piece.strip() for piece in pieces if piece.strip()]
