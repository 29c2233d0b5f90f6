"""Text files line by line: any size, with or without a byte order mark, whatever ends their lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tagfill.errors import DatasetError
from tagfill.progress import SILENT, Progress

_REPORT_BYTES = 1 << 20
_DIGITS = 1000  # of a whole number; Python refuses to read some more
_NEEDS_QUOTES = re.compile(r'^ |[,\t"\n\r]').search
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def lines(path: Path, progress: Progress = SILENT) -> Iterator[tuple[int, str]]:
    """Number and text of each line, the first one being 1; empty lines are left out."""
    for number, line in enumerate(_decoded(path, progress), start=1):
        if text := line.strip():
            yield number, text


def cells(path: Path, delimiter: str | None = None, progress: Progress = SILENT) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row of a CSV file, or of a TSV file if its name ends so; the first is the header.

    Cells may be quoted, and may then hold delimiters, quotes and line ends; a quote that is never closed is refused.
    Spaces that follow a delimiter do not belong to the cell.
    """
    reader = csv.reader(
        _decoded(path, progress), delimiter=delimiter or delimiter_of(path), skipinitialspace=True, strict=True
    )
    width = None
    try:
        for row in reader:
            if not row:
                continue
            if width is None:
                width = len(row)
            if len(row) != width:
                raise bad_line(path, reader.line_num, f"{len(row)} cells, but the header has {width}", "mend the line")
            yield reader.line_num, row
    except csv.Error as error:
        raise bad_line(path, reader.line_num, f"no readable row ({error})", "mend the line") from None
    if width is None:
        raise DatasetError(f"{path} is empty; its first line must name the columns.")


def row(values: Iterable[str], delimiter: str = ",") -> bytes:
    r"""One line of a CSV file that `cells` reads back unchanged.

    >>> row(["a, b.jpg", "007", ""])
    b'"a, b.jpg",007,\n'
    """
    return (delimiter.join([_quoted(value) for value in values]) + "\n").encode()


def bad_line(path: Path, number: int, found: str, remedy: str) -> DatasetError:
    """The error for a line that cannot be read."""
    unit = "row" if path.suffix == ".parquet" else "line"
    return DatasetError(f"{path}, {unit} {number}: found {found}; {remedy}.")


def needed(path: Path, what: str) -> Path:
    """The path itself if it is a file."""
    try:
        missing = not path.is_file()
    except OSError as error:  # such as a name that no file can have
        raise DatasetError(f"{path} cannot be read ({error.strerror}); it should hold {what}.") from None
    if missing:
        raise DatasetError(f"{path} is missing; it should hold {what}.")
    return path


def require_distinct(path: Path, names: list[str]) -> None:
    """Refuse a column that is there twice."""
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise DatasetError(f"{path} has two columns '{repeated[:60]}'; drop one of them.")


def whole_number(text: str, path: Path, number: int, what: str) -> int:
    """A cell that has to be a whole number."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        raise bad_line(path, number, f"'{text[:40]}' as {what}", "a whole number is expected")
    return int(text)


def delimiter_of(path: Path) -> str:
    """A tab for `.tsv`, else a comma."""
    return "\t" if path.suffix.lower() in (".tsv", ".tab") else ","


def _quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"' if _NEEDS_QUOTES(value) else value


def _decoded(path: Path, progress: Progress) -> Iterator[str]:
    """The lines with their ends, decoded; the bar counts bytes."""
    unreported = 0
    with needed(path, "text").open("rb") as file, progress.bar(f"Reading {path.name}", path.stat().st_size) as bar:
        if file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
            file.seek(0)
        pieces = (line for part in file for line in part.splitlines(keepends=True))  # a lone \r ends a line too
        for number, raw in enumerate(pieces, start=1):
            unreported += len(raw)
            if unreported > _REPORT_BYTES:
                bar.advance(unreported)
                unreported = 0
            try:
                yield raw.decode()
            except UnicodeDecodeError:
                raise bad_line(path, number, "bytes that are not UTF-8", "save the file as UTF-8") from None
        bar.advance(unreported)
