"""What a report is made of: sections of words, figures and tables, each with the numbers behind it.

Analyses make sections and know nothing of pages; the report lays sections out and knows nothing of analyses.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tagfill.files import replacing


@dataclass(frozen=True)
class Table:
    r"""Columns and rows of words and numbers, as a reader sees them and as a CSV file holds them.

    Attributes:
        name: of the CSV file, without its ending.
        caption: one sentence that says what the numbers are.
        columns: their headings.
        rows: as many values as columns each; None is an empty cell.

    Example:
        >>> Table("board", "Test mAP.", ("method", "mAP"), [("an", 64.5), ("role", None)]).csv()
        'method,mAP\nan,64.5\nrole,\n'
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

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
    """

    name: str
    caption: str
    alt: str
    png: bytes
    svg: str | None = None
    data: Table | None = None


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        name: short, unique within a report; the anchor of the page.
        title: its heading.
        text: paragraphs of plain words that stand before the figures.
        figures: in the order of reading.
        tables: shown after the figures.
        facts: numbers in short, name → value, for `--json`.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> list[Path]:
        """Write every picture as PNG and every table of numbers as CSV, whole or not at all.

        Args:
            folder: made if it is missing.

        Returns:
            The files, in the order of reading.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files: dict[str, bytes] = {}
        for figure in self.figures:
            files[f"{figure.name}.png"] = figure.png
            if figure.data is not None:
                files[f"{figure.data.name}.csv"] = figure.data.csv().encode()
        files |= {f"{table.name}.csv": table.csv().encode() for table in self.tables}
        for name, content in files.items():
            with replacing(folder / name) as file:
                file.write(content)
        return [folder / name for name in files]
