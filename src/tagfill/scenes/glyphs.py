"""Twenty pictograms in five groups, how often each appears, and how each is drawn.

A group is also a context: a picture about travel shows more airplanes than a picture about games. The shares fall from
group to group and within each group, so that the classes form a long tail.

Pictograms are coverage masks, rendered from the DejaVu Sans font that ships with matplotlib.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tagfill.errors import TagfillError


@dataclass(frozen=True)
class Pictogram:
    """A class and the character that draws it.

    Attributes:
        name: the class.
        character: one character of DejaVu Sans.
        group: the parent class, and the context in which it is frequent.
        share: how often it is drawn, relative to the others.
    """

    name: str
    character: str
    group: str
    share: float


PICTOGRAMS = (
    Pictogram("sun", "☀", "weather", 10.0),
    Pictogram("cloud", "☁", "weather", 7.0),
    Pictogram("snowflake", "❄", "weather", 4.5),
    Pictogram("moon", "☾", "weather", 2.5),
    Pictogram("airplane", "✈", "travel", 8.0),
    Pictogram("umbrella", "☂", "travel", 5.5),
    Pictogram("anchor", "⚓", "travel", 3.5),
    Pictogram("flag", "⚑", "travel", 2.0),
    Pictogram("envelope", "✉", "office", 6.5),
    Pictogram("telephone", "☎", "office", 4.5),
    Pictogram("scissors", "✂", "office", 3.0),
    Pictogram("pencil", "✏", "office", 1.7),
    Pictogram("knight", "♞", "games", 5.0),
    Pictogram("die", "⚄", "games", 3.5),
    Pictogram("spade", "♠", "games", 2.3),
    Pictogram("crown", "♛", "games", 1.4),
    Pictogram("gear", "⚙", "industry", 4.0),
    Pictogram("hammer", "⚒", "industry", 2.6),
    Pictogram("recycling", "♻", "industry", 1.8),
    Pictogram("radiation", "☢", "industry", 1.2),
)

CLASSES = tuple(pictogram.name for pictogram in PICTOGRAMS)
GROUPS = tuple(dict.fromkeys(pictogram.group for pictogram in PICTOGRAMS))
HIERARCHY = tuple((pictogram.name, pictogram.group) for pictogram in PICTOGRAMS)
"""(child, parent) edges from each class to its group."""

_LEVELS = (32, 64, 128, 256, 512)  # longest side of the prepared masks, in pixels
_MARGIN = 2  # empty pixels around each mask, so that edges stay soft


@dataclass(frozen=True)
class Stamp:
    """One drawn pictogram, H×W coverage from 0 to 255.

    Attributes:
        ink: the strokes.
        body: the strokes and the holes that they enclose.
    """

    ink: NDArray[np.uint8]
    body: NDArray[np.uint8]


def stamp(character: str, extent: float, angle: float, mirrored: bool) -> Stamp:
    """Draw a pictogram.

    Args:
        character: one character of DejaVu Sans.
        extent: length of its longer side before the rotation, in pixels.
        angle: rotation in radians.
        mirrored: whether left and right are swapped.
    """
    level = next((i for i, size in enumerate(_LEVELS) if size >= extent), len(_LEVELS) - 1)
    ink, body = _prepared(character)[level]
    step = _LEVELS[level] / extent
    cos, sin = math.cos(angle), math.sin(angle)
    width = math.ceil((ink.width * abs(cos) + ink.height * abs(sin)) / step)
    height = math.ceil((ink.width * abs(sin) + ink.height * abs(cos)) / step)
    flip = -1.0 if mirrored else 1.0
    a, b, d, e = flip * step * cos, flip * step * sin, -step * sin, step * cos
    c = ink.width / 2 - a * width / 2 - b * height / 2
    f = ink.height / 2 - d * width / 2 - e * height / 2
    rotated = (
        mask.transform((width, height), Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BILINEAR)
        for mask in (ink, body)
    )
    return Stamp(*(np.asarray(mask) for mask in rotated))


def font_path() -> Path:
    """The path of the font; matplotlib itself is not imported."""
    package = importlib.util.find_spec("matplotlib")
    if package is None or package.origin is None:
        raise TagfillError("Scenes are drawn with the DejaVu Sans font of matplotlib; install matplotlib.")
    return Path(package.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(font_path()), _LEVELS[-1], layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=64)
def _prepared(character: str) -> list[tuple[Image.Image, Image.Image]]:
    """Ink and body at each level."""
    left, top, right, bottom = _font().getbbox(character)
    ink = Image.new("L", (round(right - left), round(bottom - top)))
    ImageDraw.Draw(ink).text((-left, -top), character, fill=255, font=_font())
    ink = ink.crop(ink.getbbox())
    body = _filled(ink)
    return [(_shrunk(ink, size), _shrunk(body, size)) for size in _LEVELS]


def _filled(ink: Image.Image) -> Image.Image:
    """The mask with its enclosed holes filled."""
    coverage = np.asarray(ink)
    free = coverage < 128
    holes = free & ~_outside(free)
    return Image.fromarray(np.where(holes, np.uint8(255), coverage))


def _outside(free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The free pixels connected to the border, found by sweeps from all four sides until nothing changes."""
    framed = np.pad(free, 1, constant_values=True)
    outside = np.zeros_like(framed)
    outside[0] = True
    before = -1
    while before != outside.sum():
        before = outside.sum()
        for turn in range(4):
            flood, open_ = np.rot90(outside, turn), np.rot90(framed, turn)
            for line in range(1, len(flood)):
                flood[line] |= flood[line - 1] & open_[line]
    return outside[1:-1, 1:-1]


def _shrunk(mask: Image.Image, size: int) -> Image.Image:
    scale = size / max(mask.size)
    inner = mask.resize((max(1, round(mask.width * scale)), max(1, round(mask.height * scale))), Image.Resampling.BOX)
    framed = Image.new("L", (inner.width + 2 * _MARGIN, inner.height + 2 * _MARGIN))
    framed.paste(inner, (_MARGIN, _MARGIN))
    return framed
