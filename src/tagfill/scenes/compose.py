"""Put objects on a background, and know exactly which pixel belongs to which.

Objects are drawn one over the other. A place is taken only if every object under it stays visible enough;
an object that finds no place is left out of the picture, and of its annotations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tagfill.scenes import background
from tagfill.scenes.colours import Colour, against, mean_colour
from tagfill.scenes.glyphs import Stamp, stamp
from tagfill.scenes.population import draw_objects

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
    pixels = background.paint(rng, width, height)
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
