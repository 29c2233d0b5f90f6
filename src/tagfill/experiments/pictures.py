"""Pictures of class maps: which images to show, what a model sees in them, and how they are laid out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagfill.data import Locations
from tagfill.dataset import Dataset
from tagfill.deprecation import renamed
from tagfill.errors import ImageError, TagfillError, one_of
from tagfill.images import open_root, thumbnail
from tagfill.images import overlay_class_map as overlay_class_map
from tagfill.labels import POSITIVE
from tagfill.probabilities import probabilities
from tagfill.scenes.glyphs import font_path
from tagfill.training.evaluation import LoadedModel

EXAMPLES = 5
SIDE = 320  # longest side of an example, in pixels
_AREA = (0.01, 0.5)  # share of the image; smaller objects cannot be seen, larger ones say little about the place

_RED, _BLACK, _GRAY, _WHITE = (255, 64, 64), (26, 26, 26), (110, 110, 110), (255, 255, 255)
_GAP, _MARGIN = 8, 14


def choose_examples(dataset: Dataset, split: str, count: int = EXAMPLES) -> list[tuple[int, int]]:
    """Choose the first images of a split that show a class not shown before, whatever a model makes of them.

    Where boxes or masks are known, the class must cover between 1% and 50% of its image.

    Returns:
        Position in the split and class of each example.
    """
    labels, locations = dataset.labels(split), Locations.read(dataset, split)
    examples: dict[int, int] = {}  # class → image
    for image in range(len(labels)):
        if len(examples) == count:
            break
        marks = locations.of(np.array([image]))
        for label in np.flatnonzero(labels.rows(np.array([image]))[0] == POSITIVE).tolist():
            areas = marks.box[marks.label == label][:, 2:].prod(1)  # 0 for a point, whose object has no known size
            if label not in examples and (not areas.any() or _AREA[0] <= areas.sum() <= _AREA[1]):
                examples[label] = image
                break
    return [(image, label) for label, image in examples.items()]


def load_examples(dataset: Dataset, split: str, index: NDArray[np.integer]) -> list[Image.Image] | None:
    """Load images of a split, `SIDE` pixels large; None if they are missing, since cached features do not need them."""
    names = dataset.names(dataset.split(split)[index])
    try:
        root = open_root(dataset.root)
        return [thumbnail(root, name, SIDE) for name in names]
    except (TagfillError, OSError):
        return None


def predict_class_maps(
    model: LoadedModel, split: str, index: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Predict class maps, before any boost, and probabilities for some images of a split.

    Args:
        model: opened with `maps=True`.
        split: of the images.
        index: n positions in the split.

    Returns:
        n×L×H×W maps and n×L probabilities, in the order of `index`.

    Raises:
        ImageError: if one of the images cannot be read.
    """
    seen, maps, logits = [], [], []
    for batch, prediction in model.predict(split, index, maps=True):
        assert prediction.maps is not None
        seen.append(batch.index.numpy(force=True))
        maps.append(prediction.maps.float().numpy(force=True))
        logits.append(prediction.logits.float().numpy(force=True))
    missing = np.setdiff1d(index, np.concatenate(seen))
    if len(missing):
        dataset = model.dataset
        raise ImageError(dataset.names(dataset.split(split)[missing])[0], "it cannot be read")
    return np.concatenate(maps), probabilities(np.concatenate(logits), model.model.calibration)


def draw_boxes(image: Image.Image, boxes: NDArray[np.floating]) -> Image.Image:
    """Draw boxes on a copy of an image.

    Args:
        image: any.
        boxes: n×4, center and size relative to the image; a box of size 0 is a point and drawn as a dot.
    """
    drawn, (width, height) = image.convert("RGB"), image.size
    pen, thick = ImageDraw.Draw(drawn), max(2, min(image.size) // 90)
    for x, y, w, h in np.asarray(boxes, dtype=np.float64) * (width, height, width, height):
        if w <= 0 or h <= 0:
            pen.ellipse((x - 2 * thick, y - 2 * thick, x + 2 * thick, y + 2 * thick), fill=_RED, outline=_WHITE)
            continue
        corners = np.clip([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 0, (width - 1, height - 1) * 2)
        around = tuple(float(c) for c in corners)
        pen.rectangle(around, outline=_WHITE, width=thick + 2)  # a white edge keeps red visible on red
        pen.rectangle(around, outline=_RED, width=thick)
    return drawn


@dataclass(frozen=True)
class GridRow:
    """A row of `picture_grid`.

    Attributes:
        title: to the left of the pictures.
        pictures: from left to right.
        notes: text below or above each picture; empty for none.
    """

    title: str
    pictures: Sequence[Image.Image]
    notes: Sequence[str] = ()


def picture_grid(
    columns: Sequence[str], rows: Sequence[GridRow], *, side: int = 224, notes: str = "below"
) -> Image.Image:
    """Lay out pictures side by side, with a caption above each column and a title beside each row.

    Args:
        columns: captions.
        rows: each with one picture per column.
        side: longest side of a picture, in pixels.
        notes: whether notes go `below` or `above` their pictures.

    Example:
        >>> black = Image.new("RGB", (64, 64))
        >>> picture_grid(["image", "map"], [GridRow("cat", [black, black])], side=64).mode
        'RGB'
    """
    one_of("notes", notes, ("below", "above"))
    for row in rows:
        if len(row.pictures) != len(columns):
            raise TagfillError(
                f"The row '{row.title}' has {len(row.pictures)} pictures, but there are {len(columns)} columns."
            )
    caption, title, note = _caption_font(columns, side), _font(16), _font(13)
    heights = [max(round(p.height * side / max(p.size)) for p in row.pictures) for row in rows]
    note_heights = [22 if any(row.notes) else 0 for row in rows]
    title_lines = [line for row in rows for line in row.title.split("\n")]
    left = _MARGIN + max([round(title.getlength(line)) for line in title_lines] or [0]) + _MARGIN
    size = (
        left + len(columns) * (side + _GAP) - _GAP + _MARGIN,
        _MARGIN + 30 + sum(heights) + sum(note_heights) + _GAP * max(len(rows) - 1, 0) + _MARGIN,
    )
    sheet = Image.new("RGB", size, _WHITE)
    pen = ImageDraw.Draw(sheet)
    for position, name in enumerate(columns):
        pen.text((left + position * (side + _GAP) + side / 2, _MARGIN + 10), name, _BLACK, caption, anchor="mm")
    top = _MARGIN + 30
    for row, height, note_height in zip(rows, heights, note_heights, strict=True):
        note_y = top + height + 11 if notes == "below" else top + 11
        top += note_height if notes == "above" else 0
        pen.text((left - _MARGIN, top + height / 2), row.title, _BLACK, title, anchor="rm", align="right")
        for position, picture in enumerate(row.pictures):
            shown = _resize(picture, side)
            x = left + position * (side + _GAP)
            sheet.paste(shown, (x + (side - shown.width) // 2, top + (height - shown.height) // 2))
            if position < len(row.notes):
                pen.text((x + side / 2, note_y), row.notes[position], _GRAY, note, anchor="mm")
        top += height + (note_height if notes == "below" else 0) + _GAP
    return sheet


def picture_png(picture: Image.Image) -> bytes:
    """A picture as a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _resize(picture: Image.Image, side: int) -> Image.Image:
    share = side / max(picture.size)
    size = (max(1, round(picture.width * share)), max(1, round(picture.height * share)))
    return picture if picture.size == size else picture.resize(size, Image.Resampling.LANCZOS)


def _caption_font(columns: Sequence[str], side: int) -> Any:
    """The largest font in which every caption fits its column."""
    sizes = (_font(size, bold=True) for size in range(17, 9, -1))
    fitting = (font for font in sizes if all(font.getlength(name) <= side for name in columns))
    return next(fitting, _font(10, bold=True))


def _font(size: int, *, bold: bool = False) -> Any:
    path = font_path()
    return ImageFont.truetype(str(path.with_name("DejaVuSans-Bold.ttf") if bold else path), size)


__getattr__ = renamed(
    __name__,
    {
        "overlay": "overlay_class_map",
        "outlined": "draw_boxes",
        "grid": "picture_grid",
        "png": "picture_png",
        "Row": "GridRow",
    },
)
