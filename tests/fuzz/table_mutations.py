"""CSV files with a header: rows and columns lost, repeated and moved, cells quoted and changed."""

from __future__ import annotations

import csv
import io
from random import Random

from fuzz.line_mutations import STRANGE, blank_lines
from fuzz.promises import Promise

_SPELLINGS = {"1": ("1.0", " 1", "1 ", "01", "+1", "true", "TRUE"), "0": ("0.0", " 0", "-0.0", "00", "false")}


def reordered(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Rows below the header, and columns, in another order."""
    header, *rows = _rows(content)
    order = rng.sample(range(len(header)), len(header))
    shuffled = [header, *rng.sample(rows, len(rows))]
    return _written([[row[at] for at in order] for row in shuffled]), Promise.SAME


def repeated_row(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    rows = _rows(content)
    at = rng.randrange(1, len(rows))
    rows.insert(rng.choice((at, len(rows))), rows[at])
    return _written(rows), Promise.SAME_OR_REFUSED


def repeated_column(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A column a second time, with the same cells or without some of them."""
    rows = _rows(content)
    at, keep = rng.randrange(len(rows[0])), rng.choice((len(rows), 1))
    to = rng.choice((0, at, len(rows[0])))
    for number, row in enumerate(rows):
        row.insert(to, row[at] if number < keep else "")
    return _written(rows), Promise.SAME_OR_REFUSED


def quoted(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    return _written(_rows(content), csv.QUOTE_ALL), Promise.EXACTLY


def respelled(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A cell of 1 or 0 in another spelling."""
    rows = _rows(content)
    places = [(row, at) for row in rows[1:] for at, cell in enumerate(row) if cell in _SPELLINGS]
    if places:
        row, at = rng.choice(places)
        row[at] = rng.choice(_SPELLINGS[row[at]])
    return _written(rows), Promise.SAME_OR_REFUSED


def replaced(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Something strange in a cell, the header's among them."""
    rows = _rows(content)
    row = rng.choice(rows)
    row[rng.randrange(len(row))] = rng.choice(STRANGE)
    return _written(rows), Promise.NO_CRASH


def lost_cell(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    rows = _rows(content)
    row = rng.choice(rows)
    del row[rng.randrange(len(row))]
    return _written(rows), Promise.SAME_OR_REFUSED


def lost_row(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    rows = _rows(content)
    del rows[rng.randrange(len(rows))]
    return _written(rows), Promise.NO_CRASH


ALL = [reordered, repeated_row, repeated_column, quoted, respelled, replaced, lost_cell, lost_row, blank_lines]


def _rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def _written(rows: list[list[str]], quoting: int = csv.QUOTE_MINIMAL) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()
