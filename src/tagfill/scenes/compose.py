"""Put objects on a background, and know exactly which pixel belongs to which.

Objects are drawn one over the other. A place is taken only if every object under it stays visible enough;
an object that finds no place is left out of the picture, and of its annotations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.scenes import background
from tagfill.scenes.colours import against, mean_colour
from tagfill.scenes.glyphs import Stamp, stamp
from tagfill.scenes.population import draw_objects

LEAST_VISIBLE = 0.4  # share of an object's pixels that must not be covered or outside
_LEAST_PIXELS = 12
_ASPECTS = ((1.0, 1.0), (1.0, 0.75), (0.75, 1.0), (1.0, 0.67), (0.67, 1.0))
_EXTENTS = (0.20, 0.52)  # smallest and largest object, relative to the picture's shorter side
_TRIES = 10
_SHRINK = 0.93  # from one try to the next
_TILT = 0.45  # largest rotation, in radians
_FILLED = 0.5  # chance that the holes of a pictogram are painted too
_CONTRAST = 55.0
_SHADOW = 0.5  # chance of a shadow


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
class _Region:
    """Where a stamp and the picture meet: slices of the picture and slices of the stamp."""

    picture: tuple[slice, slice]
    stamp: tuple[slice, slice]


def compose(rng: np.random.Generator, size: int) -> Scene:
    """Draw a scene whose longer side is `size` pixels."""
    across, down = _ASPECTS[rng.integers(len(_ASPECTS))]
    width, height = round(size * across), round(size * down)
    objects = draw_objects(rng)
    pixels = background.paint(rng, width, height)
    owner = np.full((height, width), -1, dtype=np.int16)
    labels: list[str] = []
    totals: list[int] = []
    for pictogram in objects:
        extent = min(width, height) * _EXTENTS[0] * (_EXTENTS[1] / _EXTENTS[0]) ** rng.random()
        for _ in range(_TRIES):
            drawn = stamp(pictogram.character, extent, rng.uniform(-_TILT, _TILT), bool(rng.integers(2)))
            solid = drawn.body if rng.random() < _FILLED else drawn.ink
            region = _place(rng, solid.shape, owner.shape)
            covers = solid[region.stamp] >= 128
            total = int((solid >= 128).sum())
            if _legible(owner, region, covers, total, totals):
                _paint(rng, pixels, region, drawn, solid)
                owner[region.picture][covers] = len(labels)
                labels.append(pictogram.name)
                totals.append(total)
                break
            extent *= _SHRINK
    return Scene(pixels, tuple(Instance(label, owner == i) for i, label in enumerate(labels)))


def _place(rng: np.random.Generator, stamp_shape: tuple[int, ...], shape: tuple[int, ...]) -> _Region:
    """A random place; a stamp may stick out by a tenth of its size."""
    starts = []
    for length, room in zip(stamp_shape, shape, strict=True):
        over = length // 10
        starts.append(int(rng.integers(-over, max(room - length + over, -over) + 1)))
    picture = tuple(
        slice(max(start, 0), min(start + length, room))
        for start, length, room in zip(starts, stamp_shape, shape, strict=True)
    )
    inside = tuple(slice(part.start - start, part.stop - start) for part, start in zip(picture, starts, strict=True))
    return _Region((picture[0], picture[1]), (inside[0], inside[1]))


def _legible(
    owner: NDArray[np.int16], region: _Region, covers: NDArray[np.bool_], total: int, totals: list[int]
) -> bool:
    """Whether the new object and all those under it stay visible enough."""
    shown = int(covers.sum())
    if shown < max(LEAST_VISIBLE * total, _LEAST_PIXELS):
        return False
    hidden = np.bincount(owner[region.picture][covers] + 1, minlength=len(totals) + 1)[1:]
    touched = np.flatnonzero(hidden)
    return all(int((owner == i).sum()) - hidden[i] >= max(LEAST_VISIBLE * totals[i], _LEAST_PIXELS) for i in touched)


def _paint(
    rng: np.random.Generator, pixels: NDArray[np.uint8], region: _Region, drawn: Stamp, solid: NDArray[np.uint8]
) -> None:
    """Blend the stamp into the picture: its shadow, its holes if they are solid, its strokes."""
    patch = pixels[region.picture]
    ink = against(rng, mean_colour(patch), _CONTRAST)
    inside = against(rng, ink, 90)
    if rng.random() < _SHADOW:
        shift = max(1, round(0.03 * max(solid.shape)))
        shadow = np.zeros_like(solid)
        shadow[shift:, shift:] = solid[:-shift, :-shift]
        _blend(patch, (0, 0, 0), shadow[region.stamp] // 3)
    if solid is drawn.body:
        _blend(patch, inside, drawn.body[region.stamp])
    _blend(patch, ink, drawn.ink[region.stamp])


def _blend(patch: NDArray[np.uint8], colour: tuple[int, int, int], coverage: NDArray[np.uint8]) -> None:
    """Mix `colour` into the patch in place; whole numbers only, so that every machine draws the same."""
    share = coverage[..., None].astype(np.int32)
    patch[...] = (patch * (255 - share) + np.array(colour, dtype=np.int32) * share + 127) // 255
