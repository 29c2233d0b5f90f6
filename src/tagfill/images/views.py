"""Views of an image: what to show of it, and the pixels together with the geometry that produced them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.errors import TagfillError
from tagfill.images.geometry import Geometry

_FLIPS = ("never", "always", "random")
_CROPS = ("squash", "centre")
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class View:
    """A way to look at an image.

    Attributes:
        scale: range of the share of the image's area that a random crop covers; None shows the whole image.
        ratio: range of the crop's width over its height, in pixels.
        flip: mirror left to right `never`, `always`, or half of the time (`random`).
        flip_y: mirror top to bottom, likewise.
        crop: without a scale, `squash` the whole image into the view, or cut the largest `centre` that has the
            aspect of the view.
        share: side of the centre that is shown, over that of the largest one: 0.875 is a resize of the short side to
            256 and a crop of 224.
        strong: distort shapes and colours after crop and flips (see `tagfill.images.strong`); the geometry is then
            not exact.

    >>> View(scale=(0.25, 1.0), flip="random", strong=True).strong
    True
    """

    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: str = "never"
    flip_y: str = "never"
    crop: str = "squash"
    share: float = 1.0
    strong: bool = False

    def __post_init__(self) -> None:
        if self.flip not in _FLIPS or self.flip_y not in _FLIPS or self.crop not in _CROPS:
            raise TagfillError(f"Flips are {', '.join(_FLIPS)} and crops {', '.join(_CROPS)}; given was {self}.")
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise TagfillError(f"The scale of a view is a range of shares of the area within (0, 1], not {self.scale}.")
        if not 0 < self.ratio[0] <= self.ratio[1] or not 0 < self.share <= 1:
            raise TagfillError(f"Ratios are positive and shares are within (0, 1]; given was {self}.")
        if self.crop == "centre" and self.scale is not None:
            raise TagfillError("A view is a random crop (scale) or a centre crop, not both.")

    def draw(self, rng: np.random.Generator, width: int, height: int, *, aspect: float = 1.0) -> Geometry:
        """The geometry of one view of a width×height image.

        Args:
            rng: the numbers to draw from.
            width: of the image in pixels; only the ratio of width and height matters.
            height: of the image in pixels.
            aspect: width over height of the view, for a centre crop.
        """
        box: Box = (0.0, 0.0, 1.0, 1.0)
        if self.scale is not None:
            box = random_crop(rng, width, height, self.scale, self.ratio)
        elif self.crop == "centre":
            box = centre_crop(width, height, aspect, self.share)
        flips = [_decide(choice, rng) for choice in (self.flip, self.flip_y)]
        return Geometry(
            np.array([box], np.float32), np.array([flips[0]]), np.array([flips[1]]), np.array([not self.strong])
        )


EVAL = View()
FLIP = View(flip="always")
CROP = View(scale=(0.25, 1.0), flip="random")
STRONG = View(scale=(0.25, 1.0), flip="random", strong=True)


def _decide(flip: str, rng: np.random.Generator) -> bool:
    """Whether to mirror; only a flip that is left to chance draws a number."""
    return flip == "always" or (flip == "random" and bool(rng.random() < 0.5))


def random_crop(
    rng: np.random.Generator, width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """A random box of the given share of the area and aspect; after ten misfits, the largest central one that fits.

    Args:
        rng: the numbers to draw from.
        width: of the image in pixels; only the aspect matters.
        height: of the image in pixels.
        scale: range of the share of the area.
        ratio: range of the crop's aspect in pixels, drawn evenly in its logarithm.

    Returns:
        left, top, right, bottom, relative to the image.
    """
    for _ in range(10):
        area = rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1]))) * height / width
        w, h = math.sqrt(area * aspect), math.sqrt(area / aspect)
        if w <= 1 and h <= 1:
            left, top = rng.uniform(0, 1 - w), rng.uniform(0, 1 - h)
            return left, top, left + w, top + h
    return centre_crop(width, height, min(max(width / height, ratio[0]), ratio[1]))


def centre_crop(width: int, height: int, aspect: float, share: float = 1.0) -> Box:
    """The central box of an aspect, in pixels, whose sides are `share` of those of the largest one.

    >>> centre_crop(200, 100, aspect=1.0)
    (0.25, 0.0, 0.75, 1.0)
    """
    relative = aspect * height / width
    w, h = share * min(1.0, relative), share * min(1.0, 1 / relative)
    return (1 - w) / 2, (1 - h) / 2, (1 + w) / 2, (1 + h) / 2


def render(image: Image.Image, geometry: Geometry, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The pixels of one view: height×width×3, the crop squashed to `size` (height, width).

    The crop is cut at fractions of a pixel, so that the recorded geometry is exact.
    """
    left, top, right, bottom = geometry.box[0].astype(np.float64).tolist()
    box = (left * image.width, top * image.height, min(right, 1) * image.width, min(bottom, 1) * image.height)
    pixels = np.asarray(image.resize((size[1], size[0]), Image.Resampling.BICUBIC, box=box))
    if geometry.flip_x[0]:
        pixels = pixels[:, ::-1]
    if geometry.flip_y[0]:
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
