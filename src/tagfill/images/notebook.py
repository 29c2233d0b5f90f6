"""Photos and counts as HTML, for objects that show themselves in a notebook.

`_repr_html_` of a class puts the pieces together. Texts are escaped here, photos are small JPEGs inside the HTML, a
photo that cannot be read is a gray box with the reason, and colors work on light and dark pages.

    class Fill:
        @never_raises
        def _repr_html_(self) -> str:
            tiles = [Tile("a.jpg", (Tag("cat"), Tag("dog", "added", 0.93)), "train")]
            return panel(
                "Filled 1,200 photos",
                counts_table(["tags", "given", "added"], [["cat", 310, 122], ["dog", 240, 95]]),
                photo_grid("photos", tiles, total=1200),
                hint="fill.review() asks about uncertain tags.",
            )

`contact_sheet` draws the same tiles as one picture, which `display` shows in a notebook and returns in a script.
"""

from __future__ import annotations

import base64
import functools
import html
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from PIL import Image, ImageDraw, ImageFont

from tagfill.errors import ImageError, TagfillError
from tagfill.images.display import encode_jpeg, thumbnail
from tagfill.images.roots import Root, open_root
from tagfill.progress import in_notebook

MAX_PHOTOS = 8
MAX_TAGS = 6  # of a photo
SIDE = 144  # of a photo on the page, in CSS pixels
_DENSITY = 1.5  # pixels of a thumbnail per CSS pixel, for sharp screens
_SECONDS = 5.0  # after which no more photos are read, so that an image root that is far away does not block a cell

TagKind = Literal["given", "added", "doubted", "absent"]
_TAG_STYLES: dict[TagKind, str] = {
    "given": "background:rgba(68,119,170,.22)",
    "added": "background:rgba(34,136,51,.24)",
    "doubted": "background:rgba(238,102,119,.28)",
    "absent": "opacity:.65",
}
_TAG_SIGNS: dict[TagKind, str] = {"given": "", "added": "+ ", "doubted": "? ", "absent": "no "}
_BOX = "display:flex;align-items:center;justify-content:center;overflow:hidden;border-radius:4px"


@dataclass(frozen=True)
class Tag:
    """A tag of a photo.

    Attributes:
        name: of the class.
        kind: `given` by an annotator, `added` by a model, `doubted` by a model, or known to be `absent`.
        probability: shown beside the name, if there is one.

    >>> Tag("dog", "added", 0.93).text
    '+ dog 93%'
    """

    name: str
    kind: TagKind = "given"
    probability: float | None = None

    @property
    def text(self) -> str:
        """The tag as text; the sign of its kind says the same as its color."""
        share = "" if self.probability is None else f" {self.probability:.0%}"
        return f"{_TAG_SIGNS[self.kind]}{self.name}{share}"


@dataclass(frozen=True)
class Tile:
    """A photo and what is said about it.

    Attributes:
        image: path below the image root.
        tags: shown below the photo, as many as there is room for.
        note: a short text beside the name, such as the split.
    """

    image: str
    tags: Sequence[Tag] = ()
    note: str = ""


def never_raises(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Make a `_repr_html_` fall back to the text of the object and the reason, instead of a traceback."""

    @functools.wraps(show)
    def safe(self: Any) -> str:
        try:
            return show(self)
        except Exception as error:
            reason = f"Cannot be shown in full: {error or type(error).__name__}"
            return f"<pre>{html.escape(object_text(self))}</pre><p>{html.escape(reason)}</p>"

    return safe


def object_text(value: object) -> str:
    """The `repr` of an object, or the name of its class if that raises."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def panel(title: str, *parts: str, hint: str = "") -> str:
    """A title, pieces of HTML below it, and a hint what to do next.

    Args:
        title: text.
        *parts: HTML, made by the other functions of this module; empty parts are left out.
        hint: text; code between backticks is shown as code.
    """
    body = "".join(f'<div style="margin:6px 0">{part}</div>' for part in parts if part)
    last = f'<div style="opacity:.75;font-size:90%">{paragraph(hint)}</div>' if hint else ""
    return f'<div class="tagfill" style="line-height:1.4"><div><b>{html.escape(title)}</b></div>{body}{last}</div>'


def paragraph(text: str) -> str:
    """Escaped text; what is between backticks becomes code.

    >>> paragraph("See `a<b`.")
    'See <code>a&lt;b</code>.'
    """
    pieces = html.escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))


def counts_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, limit: int = 10) -> str:
    """A small table; numbers get thousands separators and are aligned to the right.

    Args:
        columns: header.
        rows: cells: text, numbers, or None if there is no value.
        limit: number of rows to show; the last line says how many more there are.

    >>> "1,200" in counts_table(["split", "images"], [["train", 1200]])
    True
    """
    cell = "padding:2px 10px 2px 0;border:0"
    numeric = [all(_is_number(row[at]) for row in rows) for at in range(len(columns))]
    align = [f"text-align:{'right' if right else 'left'};{cell}" for right in numeric]
    head = "".join(f'<th style="{style}">{html.escape(name)}</th>' for style, name in zip(align, columns, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{style}">{_cell_text(value)}</td>' for style, value in zip(align, row, strict=True))
        + "</tr>"
        for row in rows[:limit]
    )
    if len(rows) > limit:
        more = f"… and {len(rows) - limit:,} more"
        body += f'<tr><td colspan="{len(columns)}" style="text-align:left;opacity:.75;{cell}">{more}</td></tr>'
    return (
        f'<table style="border-collapse:collapse;margin:0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) or value.strip("-%").replace(",", "").replace(".", "", 1).isdigit()


def _cell_text(value: Any) -> str:
    if value is None or value != value:  # NaN
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))


def line_chart(name: str, values: Sequence[float]) -> str:
    """A small chart of values in order, such as the loss of each epoch, with the first and the last as text.

    >>> line_chart("loss", [0.5])  # one value is no line
    ''
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    points = " ".join(
        f"{4 + 232 * at / (len(finite) - 1):.1f},{44 - 40 * (value - low) / ((high - low) or 1):.1f}"
        for at, value in enumerate(finite)
    )
    line = f'<polyline points="{points}" fill="none" stroke="#4477aa" stroke-width="2"/>'
    drawn = f'<svg width="240" height="48" viewBox="0 0 240 48" style="vertical-align:middle">{line}</svg>'
    return f"{html.escape(name)} {finite[0]:.4g} {drawn} {finite[-1]:.4g}"


def photo_grid(
    root: Root | str | os.PathLike[str],
    tiles: Sequence[Tile],
    *,
    total: int | None = None,
    limit: int = MAX_PHOTOS,
    side: int = SIDE,
) -> str:
    """Photos side by side with their tags.

    Args:
        root: the image root, opened or not.
        tiles: photos to show.
        total: number of photos that these were taken from, if more than the tiles.
        limit: number of tiles to show at most; the others are counted.
        side: of the square for a photo, in CSS pixels.
    """
    photos = _read_photos(root, tiles[:limit], round(_DENSITY * side))
    shown = "".join(_tile_html(tile, photo, side) for tile, photo in photos)
    if not shown:
        return ""
    rest = (len(tiles) if total is None else total) - min(limit, len(tiles))
    more = f'<div style="align-self:center;opacity:.75">… and {rest:,} more</div>' if rest > 0 else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:10px">{shown}{more}</div>'


def _tile_html(tile: Tile, photo: Image.Image | str, side: int) -> str:
    name = html.escape(tile.image)
    if isinstance(photo, str):
        look = (
            f"{_BOX};background:rgba(128,128,128,.3);font-size:11px;padding:6px;box-sizing:border-box;text-align:center"
        )
        inner = html.escape(shorten(photo, 120))
    else:
        look = f"{_BOX};background:rgba(128,128,128,.1)"
        data = base64.b64encode(encode_jpeg(photo)).decode()
        fit = f"max-width:{side}px;max-height:{side}px;margin:0"
        inner = f'<img src="data:image/jpeg;base64,{data}" alt="{name}" style="{fit}">'
    note = f' <span style="opacity:.75">{html.escape(shorten(tile.note, 24))}</span>' if tile.note else ""
    return (
        f'<div style="width:{side}px;font-size:12px">'
        f'<div title="{name}" style="width:{side}px;height:{side}px;{look}">{inner}</div>'
        f'<div title="{name}" style="overflow-wrap:anywhere">{html.escape(shorten_name(tile.image))}{note}</div>'
        f"<div>{tags_html(tile.tags)}</div></div>"
    )


def tags_html(tags: Sequence[Tag], *, limit: int = MAX_TAGS) -> str:
    """Tags in colors of their kinds; those beyond the limit are counted."""
    look = "display:inline-block;border-radius:3px;padding:0 4px;margin:1px 2px 1px 0;overflow-wrap:anywhere"
    shown = "".join(
        f'<span style="{look};{_TAG_STYLES[tag.kind]}">{html.escape(shorten(tag.text, 40))}</span>'
        for tag in tags[:limit]
    )
    more = f'<span style="opacity:.75">+{len(tags) - limit} tags</span>' if len(tags) > limit else ""
    return shown + more


def _read_photos(
    root: Root | str | os.PathLike[str], tiles: Sequence[Tile], side: int
) -> list[tuple[Tile, Image.Image | str]]:
    """A thumbnail of each photo, or why there is none."""
    try:
        opened = open_root(root) if isinstance(root, str | os.PathLike) else root
    except (TagfillError, OSError) as error:
        return [(tile, str(error)) for tile in tiles]
    found: list[tuple[Tile, Image.Image | str]] = []
    begin = time.monotonic()
    for tile in tiles:
        if time.monotonic() - begin > _SECONDS:
            found.append((tile, "not read: the image root is slow"))
            continue
        try:
            found.append((tile, thumbnail(opened, tile.image, side)))
        except ImageError as error:
            found.append((tile, error.problem))
        except Exception as error:  # whatever a file or a server does, the rest is shown
            found.append((tile, f"cannot be read: {error or type(error).__name__}"))
    return found


def shorten(text: str, length: int) -> str:
    """Text of at most `length` characters on one line.

    >>> shorten("a long sentence", 8)
    'a long …'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def shorten_name(name: str, length: int = 24) -> str:
    """The file name without folders, shortened in its middle so that its ending stays.

    >>> shorten_name("2024/05/a-photo-with-a-very-long-name.jpg")
    'a-photo-with…ng-name.jpg'
    """
    last = name.rpartition("/")[2] or name
    return last if len(last) <= length else f"{last[: length // 2]}…{last[-(length - length // 2 - 1) :]}"


# One picture of many photos


def contact_sheet(
    root: Root | str | os.PathLike[str], tiles: Sequence[Tile], *, columns: int = 4, side: int = 200
) -> Image.Image:
    """Draw photos side by side with their names and tags, as one picture.

    Args:
        root: the image root, opened or not.
        tiles: photos to draw.
        columns: photos in a row.
        side: of the square for a photo, in pixels.

    Example:
        `contact_sheet("photos", [Tile("a.jpg", [Tag("cat")])]).save("sheet.png")`
    """
    gap, line = 10, 16
    columns = max(1, min(columns, len(tiles)))
    rows = -(-len(tiles) // columns)
    width, height = side + gap, side + gap + 3 * line
    sheet = Image.new("RGB", (columns * width + gap, max(rows, 1) * height + gap), "white")
    draw, font = ImageDraw.Draw(sheet), _font(12)
    for at, (tile, photo) in enumerate(_read_photos(root, tiles, side)):
        x, y = gap + at % columns * width, gap + at // columns * height
        if isinstance(photo, str):
            draw.rectangle((x, y, x + side - 1, y + side - 1), fill="#cccccc")
            for number, text in enumerate(_wrap(photo, font, side - 12, 6)):
                draw.text((x + 6, y + 6 + number * line), text, fill="#333333", font=font)
        else:
            draw.rectangle((x, y, x + side - 1, y + side - 1), fill="#f2f2f2")
            sheet.paste(photo, (x + (side - photo.width) // 2, y + (side - photo.height) // 2))
        title = " ".join(filter(None, [shorten_name(tile.image), tile.note]))
        texts = [*_wrap(title, font, side, 1), *_wrap(", ".join(tag.text for tag in tile.tags), font, side, 2)]
        for number, text in enumerate(texts):
            draw.text((x, y + side + 2 + number * line), text, fill="#555555" if number == 0 else "black", font=font)
    return sheet


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """DejaVu Sans, which has more letters than Pillow's own font; it ships with matplotlib, which is not imported."""
    package = find_spec("matplotlib")
    if package is None or package.origin is None:
        return ImageFont.load_default(size)
    return ImageFont.truetype(str(Path(package.origin).parent / "mpl-data/fonts/ttf/DejaVuSans.ttf"), size)


def _wrap(text: str, font: Any, width: int, lines: int) -> list[str]:
    """Text broken between words into at most so many lines of a width; what does not fit ends with an ellipsis."""
    broken: list[str] = []
    for word in text.split():
        longer = f"{broken[-1]} {word}" if broken else word
        if broken and font.getlength(longer) <= width:
            broken[-1] = longer
        else:
            broken.append(word)
    if len(broken) > lines:
        broken = [*broken[: lines - 1], " ".join(broken[lines - 1 :])]
    return [_cut(line, font, width) for line in broken]


def _cut(line: str, font: Any, width: int) -> str:
    if font.getlength(line) <= width:
        return line
    while line and font.getlength(f"{line}…") > width:
        line = line[:-1]
    return f"{line}…"


def display(picture: Image.Image) -> Image.Image | None:
    """Show a picture in the notebook and return None; in a script, return it."""
    if not in_notebook():
        return picture
    from IPython.display import Image as CellImage
    from IPython.display import display as show_in_cell

    show_in_cell(CellImage(data=encode_jpeg(picture), format="jpeg"))  # a quarter of the size of a PNG
    return None
