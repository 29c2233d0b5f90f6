"""Text and CSV files, read line by line: any size, any line ending, with or without a byte order mark."""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
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
    path: Path,
    delimiter: str | None = None,
    progress: Progress = SILENT,
    *,
    encoding: str = "utf-8",
    skipped_lines: int = 0,
    fit: Callable[[list[str], list[str], str], list[str] | None] | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the line number and the cells of each row of a CSV or TSV file, the header first.

    Cells may be quoted, and may then hold delimiters, quotes and line ends; a quote that is never closed is refused.
    Spaces that follow a delimiter do not belong to the cell.

    Args:
        path: the file.
        delimiter: between cells; by default that of the file's ending.
        progress: told about each megabyte.
        encoding: of the text.
        skipped_lines: lines above the header.
        fit: given a row that has another number of cells than the header, the header and the delimiter, returns the
            row with as many cells, or None if it is wrong.
    """
    delimiter = delimiter or delimiter_for(path)
    lines = itertools.islice(_decode(path, progress, encoding), skipped_lines, None)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    header: list[str] | None = None
    try:
        for row in reader:
            if not row:
                continue
            header = row if header is None else header
            number, fitted = skipped_lines + reader.line_num, row
            if len(row) != len(header):
                fitted = (None if fit is None else fit(row, header, delimiter)) or []
            if not fitted:
                found = f"{len(row)} cells, but the header has {len(header)}"
                raise line_error(
                    path, number, found, "correct the line; cells that contain the delimiter must be in quotes"
                )
            yield number, fitted
    except csv.Error as error:
        number = skipped_lines + reader.line_num
        raise line_error(path, number, f"an unreadable row ({error})", "correct the line") from None
    if header is None:
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


def find_encoding(path: Path) -> str:
    """Return how a text file is encoded.

    UTF-8; UTF-16 if the file says so, as the Unicode text of spreadsheets does; anything else is taken for
    Windows-1252, in which spreadsheets in Western Europe write CSV files.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with require_file(path, "text").open("rb") as file:
        start = file.read(2)
        if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        try:
            decoder.decode(start)
            while block := file.read(_REPORT_BYTES):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8"


def _decode(path: Path, progress: Progress, encoding: str = "utf-8") -> Iterator[str]:
    """Iterate over the decoded lines with their ends; the progress bar counts bytes."""
    unreported = 0
    if encoding == "utf-16":  # the ends of its lines are not those of bytes
        with path.open(encoding=encoding, newline="") as text:
            try:
                yield from (line for part in text for line in part.splitlines(keepends=True))
            except UnicodeError:
                raise DatasetError(f"{path} is not the UTF-16 text that it begins as; save it as UTF-8.") from None
        return
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
                yield raw.decode(encoding)
            except UnicodeDecodeError:
                found = f"bytes that are not {'UTF-8' if encoding == 'utf-8' else 'text'}"
                raise line_error(path, number, found, "save the file as UTF-8") from None
        bar.advance(unreported)
