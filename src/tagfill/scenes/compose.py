"""Scenes: choose objects, place them on a background, and record exactly which pixel belongs to which object.

Objects are drawn one over the other. A position is accepted only if every object under it stays visible enough; an
object that finds no position is left out of the picture and of its annotations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tagfill.scenes.background import Color, contrasting_color, mean_color, paint_background
from tagfill.scenes.glyphs import GROUPS, PICTOGRAMS, Pictogram, Stamp, stamp

MOST_OBJECTS = 8
_LABELS = (0.08, 0.17, 0.22, 0.22, 0.18, 0.13)  # probability of 1, 2, … 6 classes in a picture
_CONTEXTS = (0.30, 0.24, 0.19, 0.15, 0.12)  # probability of each group to be the context of a picture
_IN_CONTEXT = 8.0  # how much more frequent a class is in its context
_ANOTHER = 0.18  # probability of one more object of the same class

LEAST_VISIBLE = 0.5  # share of an object's pixels that must be visible
_LEFT_VISIBLE = (LEAST_VISIBLE, 1.2)  # range of the share of objects below that stays visible; from 1 on, all of it
_ASPECTS = ((1.0, 1.0), (1.0, 0.75), (0.75, 1.0), (1.0, 0.67), (0.67, 1.0))
_EXTENTS = (0.34, 0.66)  # smallest and largest object, relative to the picture's shorter side
_SHRINKS = (1.0, 0.87, 0.75, 0.65, 0.56)  # sizes that are tried, relative to the first
_PLACES = 3  # positions that are tried at each size
_TILT = 0.35  # largest rotation, in radians
_FILLED = 0.6  # probability that the holes of a pictogram are painted too
_SHADOW = 0.5  # probability of a shadow
_CONTRAST = 85.0  # between an object and its background, in lightness of 255
_INNER_CONTRAST = 90.0  # between the strokes of an object and its holes


@dataclass(frozen=True)
class Instance:
    """One object and its visible pixels, H×W."""

    label: str
    mask: NDArray[np.bool_]


@dataclass(frozen=True)
class Scene:
    """A picture of H×W×3 pixels and its objects."""

    pixels: NDArray[np.uint8]
    instances: tuple[Instance, ...]


def compose(rng: np.random.Generator, size: int) -> Scene:
    """Draw a scene whose longer side is `size` pixels."""
    across, down = _ASPECTS[rng.integers(len(_ASPECTS))]
    width, height = round(size * across), round(size * down)
    objects = sample_objects(rng)
    pixels = paint_background(rng, width, height)
    owners = PixelOwners(np.full((height, width), -1, dtype=np.int16))
    labels = [pictogram.name for pictogram in objects if _add(rng, pictogram.character, pixels, owners)]
    return Scene(pixels, tuple(Instance(label, owners.pixels == i) for i, label in enumerate(labels)))


def sample_objects(rng: np.random.Generator) -> list[Pictogram]:
    """Choose a context, then classes, then how many of each: one to eight pictograms in random order."""
    context = GROUPS[rng.choice(len(GROUPS), p=_CONTEXTS)]
    weights = np.array([p.share * (_IN_CONTEXT if p.group == context else 1.0) for p in PICTOGRAMS])
    labels = 1 + int(rng.choice(len(_LABELS), p=_LABELS))
    chosen = rng.choice(len(PICTOGRAMS), size=labels, replace=False, p=weights / weights.sum())
    repeats = 1 + (rng.random((labels, 2)) < _ANOTHER).sum(axis=1)
    objects = np.concatenate([chosen, np.repeat(chosen, repeats - 1)])[:MOST_OBJECTS]
    return [PICTOGRAMS[i] for i in rng.permutation(objects)]


@dataclass(frozen=True)
class Place:
    """Where a stamp lies in the picture: slices of the picture, and the same pixels as slices of the stamp."""

    picture: tuple[slice, slice]
    stamp: tuple[slice, slice]


@dataclass
class PixelOwners:
    """Which object each pixel belongs to, and how many pixels of each object were drawn and are visible."""

    pixels: NDArray[np.int16]  # H×W, -1 for the background
    totals: list[int] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)

    def try_add(self, place: Place, solid: NDArray[np.bool_], share: float) -> bool:
        """Assign the solid pixels of a stamp to a new object, if it and `share` of each object below stay visible."""
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


def _add(rng: np.random.Generator, character: str, pixels: NDArray[np.uint8], owners: PixelOwners) -> bool:
    """Try to add an object at random positions, at a random size and then smaller; return whether it was added."""
    extent = min(owners.pixels.shape) * _EXTENTS[0] * (_EXTENTS[1] / _EXTENTS[0]) ** rng.random()
    angle, mirrored, filled = rng.uniform(-_TILT, _TILT), bool(rng.integers(2)), rng.random() < _FILLED
    share = min(rng.uniform(*_LEFT_VISIBLE), 1.0)
    for shrink in _SHRINKS:
        drawn = stamp(character, extent * shrink, angle, mirrored)
        solid = (drawn.body if filled else drawn.ink) >= 128
        for _ in range(_PLACES):
            place = _place(rng, solid.shape, owners.pixels.shape)
            if owners.try_add(place, solid, share):
                _paint(rng, pixels[place.picture], drawn, place.stamp, filled=filled)
                return True
    return False


def _place(rng: np.random.Generator, stamp_shape: tuple[int, ...], shape: tuple[int, ...]) -> Place:
    """A random position; a stamp may exceed the picture by a tenth of its size."""
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
    """Blend part of a stamp into the patch: its shadow, its holes if filled, its strokes."""
    solid = drawn.body if filled else drawn.ink
    strokes = contrasting_color(rng, mean_color(patch), _CONTRAST)
    holes = contrasting_color(rng, strokes, _INNER_CONTRAST)
    if rng.random() < _SHADOW:
        shift = max(1, round(0.03 * max(solid.shape)))
        shadow = np.zeros_like(solid)
        shadow[shift:, shift:] = solid[:-shift, :-shift] // 3
        _blend(patch, (0, 0, 0), shadow[part])
    if filled:
        _blend(patch, holes, drawn.body[part])
    _blend(patch, strokes, drawn.ink[part])


def _blend(patch: NDArray[np.uint8], color: Color, coverage: NDArray[np.uint8]) -> None:
    """Mix `color` into the patch in place; integers only, so that every machine draws the same."""
    share = coverage[..., None].astype(np.uint16)  # 255 · 255 + 127 still fits
    patch[...] = (patch * (255 - share) + np.array(color, dtype=np.uint16) * share + 127) // 255
