"""Colours that can be told from what is behind them.

What is behind the objects: a soft gradient or a pattern, clutter that belongs to no class, and grain.

Which objects a scene shows: a context first, then classes, then how many of each.

Put objects on a background, and know exactly which pixel belongs to which.

Objects are drawn one over the other. A place is taken only if every object under it stays visible enough;
an object that finds no place is left out of the picture, and of its annotations.
"""

from __future__ import annotations

import colorsys
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tagfill.scenes.glyphs import GROUPS, PICTOGRAMS, Pictogram, Stamp, stamp

Colour = tuple[int, int, int]
_CANDIDATES = 12


def any_colour(rng: np.random.Generator) -> Colour:
    """A colour of any hue, from pastel to deep."""
    hue, saturation, value = rng.random(), rng.uniform(0.1, 0.9), rng.uniform(0.2, 1.0)
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


def against(rng: np.random.Generator, behind: Colour, contrast: float) -> Colour:
    """A colour whose lightness differs from `behind` by at least `contrast` of 255, or the best of a dozen."""
    best, distance = behind, -1.0
    for _ in range(_CANDIDATES):
        candidate = any_colour(rng)
        reached = abs(lightness(candidate) - lightness(behind))
        if reached > distance:
            best, distance = candidate, reached
        if distance >= contrast:
            break
    return best


def lightness(colour: Colour) -> float:
    """Perceived lightness, 0 to 255."""
    return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]


def mean_colour(pixels: NDArray[np.uint8]) -> Colour:
    """The mean of H×W×3 pixels, rounded down."""
    red, green, blue = (
        int(total) // (pixels.shape[0] * pixels.shape[1]) for total in pixels.sum(axis=(0, 1), dtype=int)
    )
    return red, green, blue


_PATTERNS = ("plain", "stripes", "checks", "dots", "blotches")
_MOST_CLUTTER = 4


def paint(rng: np.random.Generator, width: int, height: int) -> NDArray[np.uint8]:
    """A background of H×W×3 pixels."""
    first = any_colour(rng)
    canvas = _gradient(rng, first, width, height)
    second = _nearby(rng, first)
    pattern = _PATTERNS[rng.integers(len(_PATTERNS))]
    if pattern != "plain":
        mask = _pattern(rng, pattern, width, height)
        canvas.paste(second, (0, 0), mask)
    _scatter(rng, canvas)
    return _grain(rng, np.array(canvas))


def _gradient(rng: np.random.Generator, base: Colour, width: int, height: int) -> Image.Image:
    """Four to nine colours near `base`, blended across the picture."""
    cells = rng.integers(2, 4, size=2)
    corners = np.array(base) + rng.integers(-40, 41, size=(*cells, 3))
    small = Image.fromarray(np.clip(corners, 0, 255).astype(np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def _nearby(rng: np.random.Generator, base: Colour) -> Colour:
    red, green, blue = np.clip(np.array(base) + rng.integers(-50, 51, size=3), 0, 255).tolist()
    return red, green, blue


def _pattern(rng: np.random.Generator, kind: str, width: int, height: int) -> Image.Image:
    """A mask of H×W with a repeated or random texture, at a random strength."""
    strength = int(rng.integers(40, 140))
    if kind == "blotches":
        cells = int(rng.integers(5, 14))
        small = rng.integers(0, strength + 1, size=(cells, cells), dtype=np.uint8)
        return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    period = max(4, int(max(width, height) * rng.uniform(0.05, 0.16)))
    rows, columns = np.mgrid[:height, :width]
    if kind == "stripes":
        slant = rng.integers(-2, 3, size=2)
        on = (slant[0] * rows + (slant[1] or 1) * columns) % (2 * period) < period
    elif kind == "checks":
        on = (rows // period + columns // period) % 2 == 0
    else:
        on = (rows % period - period // 2) ** 2 + (columns % period - period // 2) ** 2 < (period // 3) ** 2
    return Image.fromarray(np.where(on, np.uint8(strength), np.uint8(0)))


def _scatter(rng: np.random.Generator, canvas: Image.Image) -> None:
    """Draw shapes that are no pictograms, so that an edge or a colour alone says nothing."""
    side = min(canvas.size)
    pen = ImageDraw.Draw(canvas)
    for _ in range(rng.integers(0, _MOST_CLUTTER + 1)):
        x, y = rng.uniform(0, canvas.width), rng.uniform(0, canvas.height)
        radius = side * rng.uniform(0.04, 0.22)
        colour = against(rng, canvas.getpixel((int(x), int(y))), 20)  # type: ignore[arg-type]  # the canvas is RGB
        turn, stroke = rng.uniform(0, math.tau), max(1, round(side * rng.uniform(0.008, 0.03)))
        match rng.integers(5):
            case 0:
                pen.ellipse((x - radius, y - radius * 0.7, x + radius, y + radius * 0.7), fill=colour)
            case 1:
                pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour, width=stroke)
            case 2:
                pen.regular_polygon((x, y, radius), int(rng.integers(3, 7)), math.degrees(turn), fill=colour)
            case 3:
                reach = (2 * radius * math.cos(turn), 2 * radius * math.sin(turn))
                pen.line((x - reach[0], y - reach[1], x + reach[0], y + reach[1]), fill=colour, width=stroke)
            case _:
                pen.rectangle((x - radius, y - radius * 0.4, x + radius, y + radius * 0.4), fill=colour)


def _grain(rng: np.random.Generator, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Add the same small noise to the three channels."""
    amount = int(rng.integers(0, 11))
    noise = rng.integers(-amount, amount + 1, size=(*pixels.shape[:2], 1), dtype=np.int16)
    grained: NDArray[np.int16] = pixels + noise
    return np.clip(grained, 0, 255).astype(np.uint8)


MOST_OBJECTS = 8
_LABELS = (0.08, 0.17, 0.22, 0.22, 0.18, 0.13)  # chance of 1, 2, … 6 classes in a picture
_CONTEXTS = (0.30, 0.24, 0.19, 0.15, 0.12)  # chance of each group to be the picture's context
_IN_CONTEXT = 8.0  # how much more often a class appears in its context
_ANOTHER = 0.18  # chance of one more object of the same class


def draw_objects(rng: np.random.Generator) -> list[Pictogram]:
    """One to eight pictograms, in random order; a class may occur several times."""
    context = GROUPS[rng.choice(len(GROUPS), p=_CONTEXTS)]
    weights = np.array([p.share * (_IN_CONTEXT if p.group == context else 1.0) for p in PICTOGRAMS])
    labels = 1 + int(rng.choice(len(_LABELS), p=_LABELS))
    chosen = rng.choice(len(PICTOGRAMS), size=labels, replace=False, p=weights / weights.sum())
    repeats = 1 + (rng.random((labels, 2)) < _ANOTHER).sum(axis=1)
    objects = np.concatenate([chosen, np.repeat(chosen, repeats - 1)])[:MOST_OBJECTS]
    return [PICTOGRAMS[i] for i in rng.permutation(objects)]


LEAST_VISIBLE = 0.5  # share of an object's pixels that must be neither covered nor outside
_SHYNESS = (LEAST_VISIBLE, 1.2)  # the share that a new object leaves to those under it; from 1 on it covers nothing
_ASPECTS = ((1.0, 1.0), (1.0, 0.75), (0.75, 1.0), (1.0, 0.67), (0.67, 1.0))
_EXTENTS = (0.34, 0.66)  # smallest and largest object, relative to the picture's shorter side
_SHRINKS = (1.0, 0.87, 0.75, 0.65, 0.56)  # sizes that an object tries, relative to the one it drew
_PLACES = 3  # places that it tries at each size
_TILT = 0.35  # largest rotation, in radians
_FILLED = 0.6  # chance that the holes of a pictogram are painted too
_SHADOW = 0.5  # chance of a shadow
_CONTRAST = 85.0  # between an object and what is behind it, in lightness of 255
_INNER_CONTRAST = 90.0  # between the strokes of an object and its holes


@dataclass(frozen=True)
class Instance:
    """One object and the H×W pixels where it can be seen."""

    label: str
    mask: NDArray[np.bool_]


@dataclass(frozen=True)
class Scene:
    """A picture of H×W×3 pixels and its objects."""

    pixels: NDArray[np.uint8]
    instances: tuple[Instance, ...]


@dataclass(frozen=True)
class Place:
    """Where a stamp and the picture meet: slices of the picture, and the same pixels as slices of the stamp."""

    picture: tuple[slice, slice]
    stamp: tuple[slice, slice]


@dataclass
class Owners:
    """Which object each pixel belongs to, and how much of each object was drawn and can still be seen."""

    pixels: NDArray[np.int16]  # H×W, -1 for the background
    totals: list[int] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)

    def admit(self, place: Place, solid: NDArray[np.bool_], share: float) -> bool:
        """Take the solid pixels of a stamp for a new object, if it and the share of those under it stay visible."""
        covers = solid[place.stamp]
        total, shown = int(solid.sum()), int(covers.sum())
        under = self.pixels[place.picture]
        hidden = np.bincount(under[covers] + 1, minlength=len(self.totals) + 1)[1:].tolist()
        left = [visible - lost for visible, lost in zip(self.visible, hidden, strict=True)]
        if shown < LEAST_VISIBLE * total:
            return False
        if any(lost and rest < share * drawn for lost, rest, drawn in zip(hidden, left, self.totals, strict=True)):
            return False
        under[covers] = len(self.totals)
        self.totals.append(total)
        self.visible = [*left, shown]
        return True


def compose(rng: np.random.Generator, size: int) -> Scene:
    """Draw a scene whose longer side is `size` pixels."""
    across, down = _ASPECTS[rng.integers(len(_ASPECTS))]
    width, height = round(size * across), round(size * down)
    objects = draw_objects(rng)
    pixels = paint(rng, width, height)
    owners = Owners(np.full((height, width), -1, dtype=np.int16))
    labels = [pictogram.name for pictogram in objects if _add(rng, pictogram.character, pixels, owners)]
    return Scene(pixels, tuple(Instance(label, owners.pixels == i) for i, label in enumerate(labels)))


def _add(rng: np.random.Generator, character: str, pixels: NDArray[np.uint8], owners: Owners) -> bool:
    """Try to add an object at random places, first at the size that it draws and then smaller; whether it found one."""
    extent = min(owners.pixels.shape) * _EXTENTS[0] * (_EXTENTS[1] / _EXTENTS[0]) ** rng.random()
    angle, mirrored, filled = rng.uniform(-_TILT, _TILT), bool(rng.integers(2)), rng.random() < _FILLED
    share = min(rng.uniform(*_SHYNESS), 1.0)
    for shrink in _SHRINKS:
        drawn = stamp(character, extent * shrink, angle, mirrored)
        solid = (drawn.body if filled else drawn.ink) >= 128
        for _ in range(_PLACES):
            place = _place(rng, solid.shape, owners.pixels.shape)
            if owners.admit(place, solid, share):
                _paint(rng, pixels[place.picture], drawn, place.stamp, filled=filled)
                return True
    return False


def _place(rng: np.random.Generator, stamp_shape: tuple[int, ...], shape: tuple[int, ...]) -> Place:
    """A random place; a stamp may stick out by a tenth of its size."""
    inside, within = [], []
    for length, room in zip(stamp_shape, shape, strict=True):
        over = length // 10
        start = int(rng.integers(-over, max(room - length + over, -over) + 1))
        first, last = max(start, 0), min(start + length, room)
        inside.append(slice(first, last))
        within.append(slice(first - start, last - start))
    return Place((inside[0], inside[1]), (within[0], within[1]))


def _paint(
    rng: np.random.Generator, patch: NDArray[np.uint8], drawn: Stamp, part: tuple[slice, slice], *, filled: bool
) -> None:
    """Blend a part of the stamp into the patch: its shadow, its holes if they are filled, its strokes."""
    solid = drawn.body if filled else drawn.ink
    strokes = against(rng, mean_colour(patch), _CONTRAST)
    holes = against(rng, strokes, _INNER_CONTRAST)
    if rng.random() < _SHADOW:
        shift = max(1, round(0.03 * max(solid.shape)))
        shadow = np.zeros_like(solid)
        shadow[shift:, shift:] = solid[:-shift, :-shift] // 3
        _blend(patch, (0, 0, 0), shadow[part])
    if filled:
        _blend(patch, holes, drawn.body[part])
    _blend(patch, strokes, drawn.ink[part])


def _blend(patch: NDArray[np.uint8], colour: Colour, coverage: NDArray[np.uint8]) -> None:
    """Mix `colour` into the patch in place; whole numbers only, so that every machine draws the same."""
    share = coverage[..., None].astype(np.uint16)  # 255 · 255 + 127 still fits
    patch[...] = (patch * (255 - share) + np.array(colour, dtype=np.uint16) * share + 127) // 255
