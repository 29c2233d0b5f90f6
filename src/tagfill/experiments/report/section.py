"""How the values of a table are written, sorted and drawn.

What a report is made of: sections of words, figures, tables and pictures, each with the numbers behind it.

Analyses make sections and know nothing of pages; the report lays sections out and knows nothing of analyses.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tagfill.errors import TagfillError
from tagfill.io import atomic_write, write_json


def is_number(table: Table, column: int) -> bool:
    """Whether a column holds numbers and nothing else."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def key(value: Any) -> str:
    """What a cell is sorted by; nothing and what is not a number come last.

    >>> key(0.5), key("an"), key(None), key(float("nan"))
    ('0.5', 'an', '', '')
    """
    return "" if value is None or value != value else str(value)


def cell(value: Any, form: str = "") -> str:
    """A value as a reader sees it.

    >>> cell(0.25, ".0%"), cell(12000), cell(1.23456), cell(None), cell(True)
    ('25%', '12,000', '1.235', '–', 'yes')
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format(value, form or ("," if isinstance(value, int) else ".4g"))
    return str(value)


def percent(value: Any) -> float:
    """The length of a bar: a share in percent, within 0…100."""
    return 0.0 if value is None or value != value else round(100 * min(max(float(value), 0.0), 1.0), 1)


FILE = "section.json"


@dataclass(frozen=True)
class Table:
    r"""Columns and rows of words and numbers, as a reader sees them and as a CSV file holds them.

    Attributes:
        name: of the CSV file, without its ending.
        caption: one sentence that says what the numbers are.
        columns: their headings.
        rows: as many values as columns each; None is an empty cell.
        formats: how a page writes the numbers of a column, as in `{"mAP": ".2f"}`; the CSV file has them in full.
        bars: columns of shares in 0…1 that a page also draws as bars.
        swatches: colours beside values of the first column.

    Example:
        >>> Table("board", "Test mAP.", ("method", "mAP"), [("an", 64.5), ("role", None)]).csv()
        'method,mAP\nan,64.5\nrole,\n'
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    formats: Mapping[str, str] = field(default_factory=dict)
    bars: tuple[str, ...] = ()
    swatches: Mapping[str, str] = field(default_factory=dict)

    def csv(self) -> str:
        """The table as a CSV file with a heading."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


@dataclass(frozen=True)
class Figure:
    """A picture with the numbers behind it.

    Attributes:
        name: of the PNG and CSV files, without their endings.
        caption: what it shows and what to see in it, in a sentence or two.
        alt: the same for somebody who cannot see it.
        png: the picture as a file.
        svg: the picture as an element that follows the page from light to dark; None for photographs.
        data: the numbers that were drawn; None where the picture is made of images alone.
        abreast: how many figures like it stand side by side where there is room.
    """

    name: str
    caption: str
    alt: str
    png: bytes
    svg: str | None = None
    data: Table | None = None
    abreast: int = 1


@dataclass(frozen=True)
class Picture:
    """A small picture with a few words below it.

    Attributes:
        file: as JPEG or PNG.
        alt: what it shows, for somebody who cannot see it.
        note: below it.
        right: whether what the note claims is true; None where nobody knows.
    """

    file: bytes
    alt: str
    note: str = ""
    right: bool | None = None


@dataclass(frozen=True)
class Gallery:
    """Small pictures: in rows under headings, or one after the other.

    Attributes:
        name: unique within a section.
        caption: what to see in them.
        rows: pictures of each row, with its title.
        columns: headings; empty if the pictures of all rows follow each other.
    """

    name: str
    caption: str
    rows: Sequence[tuple[str, Sequence[Picture]]]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing:
    """Text as it is, such as the settings of a run; a page folds it."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        name: short, unique within a report; the anchor of the page.
        title: its heading.
        text: paragraphs of plain words that stand before the figures.
        figures: in the order of reading.
        tables: shown after the figures.
        galleries: shown after the tables.
        notes: paragraphs of plain words that stand after the tables.
        listings: shown at the end.
        facts: numbers in short, name → value, for `--json`.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    notes: tuple[str, ...] = ()
    listings: tuple[Listing, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> list[Path]:
        """Write every picture as PNG, every table of numbers as CSV, and the rest as JSON, each whole or not at all.

        Args:
            folder: made if it is missing; pictures and numbers of a section that was saved there before are removed.

        Returns:
            The files, in the order of reading; the last is the one that `open` begins with.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        if (folder / FILE).is_file():
            for name in Section.open(folder)._files().keys() - files.keys():
                (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            with atomic_write(folder / name) as file:
                file.write(content)
        described = asdict(replace(self, galleries=()))  # photographs stay in the page alone
        for figure in described["figures"]:
            del figure["png"]
        write_json(folder / FILE, described)
        return [folder / name for name in [*files, FILE]]

    def _files(self) -> dict[str, bytes]:
        """Pictures and numbers by the names of their files, in the order of reading."""
        files: dict[str, bytes] = {}
        for figure in self.figures:
            files[f"{figure.name}.png"] = figure.png
            if figure.data is not None:
                files[f"{figure.data.name}.csv"] = figure.data.csv().encode()
        return files | {f"{table.name}.csv": table.csv().encode() for table in self.tables}

    @classmethod
    def open(cls, folder: Path) -> Section:
        """Read back what `save` wrote: all but galleries."""
        if not (folder / FILE).is_file():
            raise TagfillError(f"{folder} holds no section of a report: it has no {FILE}.")
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        figures = [
            Figure(**{**figure, "data": _table(figure["data"])}, png=(folder / f"{figure['name']}.png").read_bytes())
            for figure in content["figures"]
        ]
        tables = [table for table in map(_table, content["tables"]) if table is not None]
        return cls(
            content["name"],
            content["title"],
            tuple(content["text"]),
            tuple(figures),
            tuple(tables),
            notes=tuple(content["notes"]),
            listings=tuple(Listing(**listing) for listing in content["listings"]),
            facts=content["facts"],
        )


def _table(content: dict[str, Any] | None) -> Table | None:
    if content is None:
        return None
    lists = {"columns": tuple(content["columns"]), "bars": tuple(content["bars"])}
    return Table(**{**content, **lists, "rows": [tuple(row) for row in content["rows"]]})
