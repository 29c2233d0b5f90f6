"""What a model sees where: class maps and probabilities of a few images.

Examples to show: chosen by what is on the image, never by how well a model does on it.

Pictures of class maps: laid over their image, and side by side with the image and the truth.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagfill.data import Locations
from tagfill.dataset import Dataset
from tagfill.errors import ImageError, TagfillError, one_of
from tagfill.images import open_root, thumbnail
from tagfill.images.display import overlay_class_map as overlay_class_map
from tagfill.labels import POSITIVE
from tagfill.probabilities import probabilities
from tagfill.scenes.glyphs import font_path
from tagfill.training.evaluation import LoadedModel


def class_maps(
    trained: LoadedModel, split: str, index: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Class maps before any boost, and probabilities, of some images of a split.

    Args:
        trained: opened with class maps.
        split: of the images.
        index: n positions in it.

    Returns:
        n×L×H×W maps and n×L probabilities, in the order of `index`.

    Raises:
        ImageError: if one of the images cannot be read.
    """
    seen, maps, logits = [], [], []
    for batch, prediction in trained.predict(split, index, maps=True):
        assert prediction.maps is not None
        seen.append(batch.index.numpy(force=True))
        maps.append(prediction.maps.float().numpy(force=True))
        logits.append(prediction.logits.float().numpy(force=True))
    lost = np.setdiff1d(index, np.concatenate(seen))
    if len(lost):
        dataset = trained.dataset
        raise ImageError(dataset.names(dataset.split(split)[lost])[0], "it cannot be read")
    return np.concatenate(maps), probabilities(np.concatenate(logits))


EXAMPLES = 5
SIDE = 320  # pixels of an example's longest side
_AREA = (0.01, 0.5)  # shares of the image; smaller is invisible, larger shows nothing about places


def example_pairs(dataset: Dataset, split: str, count: int = EXAMPLES) -> list[tuple[int, int]]:
    """The first images of a split with a class that was not shown yet, and that class.

    Where boxes or masks are known, a class covers enough of its image to be seen and not most of it.
    """
    return list(_pairs(dataset, split, count))


def _pairs(dataset: Dataset, split: str, count: int) -> Iterator[tuple[int, int]]:
    labels, places, used = dataset.labels(split), Locations.read(dataset, split), set[int]()
    for image in range(len(labels)):
        if len(used) == count:
            return
        marks = places.of(np.array([image]))
        for label in np.flatnonzero(labels.rows(np.array([image]))[0] == POSITIVE).tolist():
            areas = marks.box[marks.label == label][:, 2:].prod(1)  # 0 of a point, which says nothing of its size
            if label not in used and (not areas.any() or _AREA[0] <= areas.sum() <= _AREA[1]):
                used.add(label)
                yield image, label
                break


def example_photos(dataset: Dataset, split: str, index: NDArray[np.integer]) -> list[Image.Image] | None:
    """Images of a split, small enough to be shown; None where they are not at hand, as cached features need none."""
    names = dataset.names(dataset.split(split)[index])
    try:
        root = open_root(dataset.root)
        return [thumbnail(root, name, SIDE) for name in names]
    except (TagfillError, OSError):
        return None


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


def picture_grid(columns: Sequence[str], rows: Sequence[Row], *, side: int = 224, notes: str = "below") -> Image.Image:
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


def picture_png(picture: Image.Image) -> bytes:
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
