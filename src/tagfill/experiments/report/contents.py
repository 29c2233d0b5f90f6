"""What a report is made of: sections of words, tables, drawings and pictures, the same for a page and for Markdown."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass, field

from PIL import Image


@dataclass(frozen=True)
class Cell:
    """One cell of a table; `share` in 0…100 draws a bar, `colour` a swatch."""

    text: str
    number: bool = False
    colour: str | None = None
    share: float | None = None


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    name: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """Columns and their rows."""

    columns: list[Column]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Drawing:
    """A figure as an SVG element."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Picture:
    """A picture inside the page; `verdict` says whether what it claims is right."""

    source: str
    caption: str
    verdict: str = ""
    right: bool = True


@dataclass(frozen=True)
class Block:
    """Text as it is, folded."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    title: str
    paragraphs: list[str] = field(default_factory=list)
    table: Table | None = None
    drawings: list[Drawing] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    picture_rows: list[list[Picture]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Its name in a link.

        >>> Section("Score distributions").anchor
        'score-distributions'
        """
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Fact:
    """A number for the top of the page."""

    name: str
    value: str


@dataclass(frozen=True)
class Report:
    """Everything that a report says."""

    title: str
    summary: str
    facts: list[Fact]
    sections: list[Section]


def embedded(image: Image.Image, *, quality: int = 82) -> str:
    """A picture as the address of itself, so that the page needs no other file.

    >>> embedded(Image.new("RGB", (2, 2)))[:23]
    'data:image/jpeg;base64,'
    """
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
