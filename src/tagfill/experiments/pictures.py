"""Pictures of class maps: laid over their image, and side by side with the image and the truth."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagfill.errors import TagfillError, one_of
from tagfill.images.overlay import overlay as overlay
from tagfill.scenes.glyphs import font_path

_TRUTH, _INK, _GREY, _PAPER = (255, 64, 64), (26, 26, 26), (110, 110, 110), (255, 255, 255)
_GAP, _MARGIN = 8, 14


def outlined(image: Image.Image, boxes: NDArray[np.floating]) -> Image.Image:
    """An image with boxes drawn on it.

    Args:
        image: any.
        boxes: n×4, centre and size relative to the image; one of no size is a point, drawn as a dot.
    """
    drawn, (width, height) = image.convert("RGB"), image.size
    pen, thick = ImageDraw.Draw(drawn), max(2, min(image.size) // 90)
    for x, y, w, h in np.asarray(boxes, dtype=np.float64) * (width, height, width, height):
        if w <= 0 or h <= 0:
            pen.ellipse((x - 2 * thick, y - 2 * thick, x + 2 * thick, y + 2 * thick), fill=_TRUTH, outline=_PAPER)
            continue
        corners = np.clip([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 0, (width - 1, height - 1) * 2)
        around = tuple(float(c) for c in corners)
        pen.rectangle(around, outline=_PAPER, width=thick + 2)  # a white edge keeps red visible on red
        pen.rectangle(around, outline=_TRUTH, width=thick)
    return drawn


@dataclass(frozen=True)
class Row:
    """One line of a grid.

    Attributes:
        title: what the maps are of.
        pictures: from left to right.
        notes: below or above each picture; empty for none.
    """

    title: str
    pictures: Sequence[Image.Image]
    notes: Sequence[str] = ()


def grid(columns: Sequence[str], rows: Sequence[Row], *, side: int = 224, notes: str = "below") -> Image.Image:
    """Pictures side by side, with a caption over each column and a title at each row.

    Args:
        columns: captions.
        rows: of as many pictures.
        side: the longest side of a picture, in pixels.
        notes: stand `below` or `above` their pictures.

    Example:
        >>> black = Image.new("RGB", (64, 64))
        >>> grid(["image", "map"], [Row("cat", [black, black])], side=64).mode
        'RGB'
    """
    one_of("notes", notes, ("below", "above"))
    for row in rows:
        if len(row.pictures) != len(columns):
            raise TagfillError(
                f"The row '{row.title}' has {len(row.pictures)} pictures, but there are {len(columns)} columns."
            )
    caption, title, note = _caption(columns, side), _font(16), _font(13)
    heights = [max(round(p.height * side / max(p.size)) for p in row.pictures) for row in rows]
    room = [22 if any(row.notes) else 0 for row in rows]
    left = (
        _MARGIN + max([round(title.getlength(line)) for row in rows for line in row.title.split("\n")] or [0]) + _MARGIN
    )
    size = (
        left + len(columns) * (side + _GAP) - _GAP + _MARGIN,
        _MARGIN + 30 + sum(heights) + sum(room) + _GAP * max(len(rows) - 1, 0) + _MARGIN,
    )
    sheet = Image.new("RGB", size, _PAPER)
    pen = ImageDraw.Draw(sheet)
    for position, name in enumerate(columns):
        pen.text((left + position * (side + _GAP) + side / 2, _MARGIN + 10), name, _INK, caption, anchor="mm")
    top = _MARGIN + 30
    for row, height, extra in zip(rows, heights, room, strict=True):
        written = top + height + 11 if notes == "below" else top + 11
        top += extra if notes == "above" else 0
        pen.text((left - _MARGIN, top + height / 2), row.title, _INK, title, anchor="rm", align="right")
        for position, picture in enumerate(row.pictures):
            shown = _fitted(picture, side)
            x = left + position * (side + _GAP)
            sheet.paste(shown, (x + (side - shown.width) // 2, top + (height - shown.height) // 2))
            if position < len(row.notes):
                pen.text((x + side / 2, written), row.notes[position], _GREY, note, anchor="mm")
        top += height + (extra if notes == "below" else 0) + _GAP
    return sheet


def png(picture: Image.Image) -> bytes:
    """As a file."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _fitted(picture: Image.Image, side: int) -> Image.Image:
    share = side / max(picture.size)
    size = (max(1, round(picture.width * share)), max(1, round(picture.height * share)))
    return picture if picture.size == size else picture.resize(size, Image.Resampling.LANCZOS)


def _caption(columns: Sequence[str], side: int) -> Any:
    """The font of captions, small enough for the longest of them to stay over its column."""
    sizes = (_font(size, bold=True) for size in range(17, 9, -1))
    fitting = (font for font in sizes if all(font.getlength(name) <= side for name in columns))
    return next(fitting, _font(10, bold=True))


def _font(size: int, *, bold: bool = False) -> Any:
    path = font_path()
    return ImageFont.truetype(str(path.with_name("DejaVuSans-Bold.ttf") if bold else path), size)
