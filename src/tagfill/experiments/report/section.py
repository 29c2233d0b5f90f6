r"""The content of a report: sections of text, figures, tables and pictures, each with the numbers behind it.

Analyses make sections and know nothing about pages; `page.py` lays out sections and knows nothing about analyses.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tagfill.errors import TagfillError
from tagfill.figures import png, svg
from tagfill.io import atomic_write, spreadsheet_cell, write_json

SECTION_FILE = "section.json"


@dataclass(frozen=True)
class Table:
    r"""Columns and rows of text and numbers.

    Attributes:
        name: of the CSV file, without its ending.
        caption: one sentence that says what the numbers are.
        columns: their headings.
        rows: one value per column; None is an empty cell.
        formats: how a page formats the numbers of a column, such as `{"mAP": ".2f"}`; the CSV file has all digits.
        bars: columns of shares in 0…1 that a page also draws as bars.
        swatches: color patches beside values of the first column.

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

    def csv(self, *, spreadsheet: bool = False) -> str:
        """The table as CSV with a header line.

        Args:
            spreadsheet: write an apostrophe before texts that a spreadsheet would run as formulas.
        """
        rows = self.rows
        if spreadsheet:
            rows = [[spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(rows)
        return text.getvalue()


@dataclass(frozen=True)
class Figure:
    """A picture with the numbers behind it.

    Attributes:
        name: of the PNG and CSV files, without their endings.
        caption: what it shows, in a sentence or two.
        alt: text for readers who cannot see it.
        png: the picture as a PNG file.
        svg: the picture as an `<svg>` element that follows the page from light to dark; None for photographs.
        data: the numbers that were drawn; None if the picture consists of images only.
        abreast: number of figures like this one side by side on a wide page.
    """

    name: str
    caption: str
    alt: str
    png: bytes
    svg: str | None = None
    data: Table | None = None
    abreast: int = 1


def report_figure(
    figure: Any, name: str, caption: str, alt: str, data: Table | None = None, *, abreast: int = 1
) -> Figure:
    """Convert a matplotlib figure to a figure of a section; see `Figure` for the arguments."""
    return Figure(name, caption, alt, png(figure), svg(figure), data, abreast)


@dataclass(frozen=True)
class Picture:
    """A small picture with a note below it.

    Attributes:
        file: a JPEG or PNG file.
        alt: text for readers who cannot see it.
        note: below it.
        right: whether the claim of the note is true; None if that is unknown.
    """

    file: bytes
    alt: str
    note: str = ""
    right: bool | None = None


@dataclass(frozen=True)
class Gallery:
    """Small pictures, in a table or in a plain sequence.

    Attributes:
        name: unique within a section.
        caption: what to look for.
        rows: title and pictures of each row.
        columns: headings of the table; empty for a plain sequence.
    """

    name: str
    caption: str
    rows: Sequence[tuple[str, Sequence[Picture]]]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing:
    """Preformatted text, such as the settings of a run, that a page shows on demand."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        name: short and unique within a report; the anchor on the page.
        title: its heading.
        text: paragraphs before the figures.
        figures: shown first.
        tables: shown after the figures.
        galleries: shown after the tables.
        notes: paragraphs after the tables.
        listings: shown at the end.
        facts: key numbers by name, for `--json`.
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
        """Write every figure as PNG, every table as CSV and the rest as `section.json`; galleries are not saved.

        Args:
            folder: created if it is missing; files of a section saved there before are removed.

        Returns:
            The files in reading order, `section.json` last.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        if (folder / SECTION_FILE).is_file():
            for name in Section.open(folder)._files().keys() - files.keys():
                (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            with atomic_write(folder / name) as file:
                file.write(content)
        description = asdict(replace(self, galleries=()))  # photographs are part of the page only
        for figure in description["figures"]:
            del figure["png"]
        write_json(folder / SECTION_FILE, description)
        return [folder / name for name in [*files, SECTION_FILE]]

    def _files(self) -> dict[str, bytes]:
        """Content of the PNG and CSV files by file name, in reading order."""
        files: dict[str, bytes] = {}
        for figure in self.figures:
            files[f"{figure.name}.png"] = figure.png
            if figure.data is not None:
                files[f"{figure.data.name}.csv"] = figure.data.csv().encode()
        return files | {f"{table.name}.csv": table.csv().encode() for table in self.tables}

    @classmethod
    def open(cls, folder: Path) -> Section:
        """Read what `save` wrote: everything except galleries.

        Raises:
            TagfillError: if the folder holds no section, or a damaged one.
        """
        path = folder / SECTION_FILE
        if not path.is_file():
            raise TagfillError(f"{folder} holds no report section: it has no {SECTION_FILE}.")
        content = json.loads(path.read_text(encoding="utf-8"))
        for figure in content["figures"]:
            figure["png"] = (folder / f"{figure['name']}.png").read_bytes()
        for table in [*content["tables"], *(figure["data"] for figure in content["figures"])]:
            if table is not None:
                table["rows"] = [tuple(row) for row in table["rows"]]
        try:
            return TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            raise TagfillError(f"{path} is damaged: {error.errors()[0]['msg']}.") from None
