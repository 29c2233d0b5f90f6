"""Text and CSV files, read line by line: any size, any line ending, with or without a byte order mark."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tagfill.errors import DatasetError
from tagfill.progress import SILENT, Progress

_REPORT_BYTES = 1 << 20
_MOST_DIGITS = 1000  # of a whole number; Python refuses to parse a few thousand
_NEEDS_QUOTES = re.compile(r'^ |[,\t"\n\r]').search
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path, progress: Progress = SILENT) -> Iterator[tuple[int, str]]:
    """Iterate over the number (from 1) and the stripped text of each line that is not empty."""
    for number, line in enumerate(_decode(path, progress), start=1):
        if text := line.strip():
            yield number, text


def read_table(
    path: Path, delimiter: str | None = None, progress: Progress = SILENT
) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the line number and the cells of each row of a CSV or TSV file, the header first.

    Cells may be quoted, and may then hold delimiters, quotes and line ends; a quote that is never closed is refused.
    Spaces that follow a delimiter do not belong to the cell.
    """
    reader = csv.reader(
        _decode(path, progress), delimiter=delimiter or delimiter_for(path), skipinitialspace=True, strict=True
    )
    width = None
    try:
        for row in reader:
            if not row:
                continue
            if width is None:
                width = len(row)
            if len(row) != width:
                found = f"{len(row)} cells, but the header has {width}"
                raise line_error(
                    path, reader.line_num, found, "correct the line; cells that contain the delimiter must be in quotes"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise line_error(path, reader.line_num, f"an unreadable row ({error})", "correct the line") from None
    if width is None:
        raise DatasetError(f"{path} is empty; its first line must name the columns.")


def csv_line(values: Iterable[str], delimiter: str = ",") -> bytes:
    r"""Return one line of a CSV file that `read_table` reads back unchanged.

    >>> csv_line(["a, b.jpg", "007", ""])
    b'"a, b.jpg",007,\n'
    """
    return (delimiter.join([_quote(value) for value in values]) + "\n").encode()


def delimiter_for(path: Path) -> str:
    """Return a tab for `.tsv` files, else a comma."""
    return "\t" if path.suffix.lower() in (".tsv", ".tab") else ","


def line_error(path: Path, number: int, found: str, remedy: str) -> DatasetError:
    """Return the error for a line that cannot be read."""
    unit = "row" if path.suffix == ".parquet" else "line"
    return DatasetError(f"{path}, {unit} {number}: found {found}; {remedy}.")


def require_file(path: Path, content: str) -> Path:
    """Return the path if it is a file; `content` says what the file should hold, for the message."""
    try:
        missing = not path.is_file()
    except OSError as error:  # such as a name that no file can have
        raise DatasetError(f"{path} cannot be read ({error.strerror}); it should hold {content}.") from None
    if missing:
        raise DatasetError(f"{path} is missing; it should hold {content}.")
    return path


def require_distinct_columns(path: Path, names: list[str]) -> None:
    """Raise if two columns have the same name."""
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise DatasetError(f"{path} has two columns '{repeated[:60]}'; drop one of them.")


def parse_whole_number(text: str, path: Path, number: int, what: str) -> int:
    """Parse a cell that has to be a whole number; `what` it stands for is named in the message."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise line_error(path, number, f"'{text[:40]}' as {what}", "a whole number is expected")
    return int(text)


def _quote(value: str) -> str:
    return '"' + value.replace('"', '""') + '"' if _NEEDS_QUOTES(value) else value


def _decode(path: Path, progress: Progress) -> Iterator[str]:
    """Iterate over the decoded lines with their ends; the progress bar counts bytes."""
    unreported = 0
    with (
        require_file(path, "text").open("rb") as file,
        progress.bar(f"Reading {path.name}", path.stat().st_size) as bar,
    ):
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
                raise line_error(path, number, "bytes that are not UTF-8", "save the file as UTF-8") from None
        bar.advance(unreported)
