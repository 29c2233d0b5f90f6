"""Views of an image: pixels together with the geometry that produced them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.images.geometry import Geometry


@dataclass(frozen=True)
class View:
    """A way to look at an image.

    Attributes:
        scale: range of the share of the image's area that a random crop covers; None shows the whole image.
        ratio: range of the crop's width over its height, in pixels.
        flip: mirror left to right `never`, `always`, or half of the time (`random`).
    """

    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: str = "never"

    def draw(self, rng: np.random.Generator, width: int, height: int) -> Geometry:
        """The geometry of one view of a width×height image."""
        box = (0.0, 0.0, 1.0, 1.0) if self.scale is None else random_crop(rng, width, height, self.scale, self.ratio)
        flip = {"never": False, "always": True}.get(self.flip)
        if flip is None:
            flip = bool(rng.random() < 0.5)
        return Geometry(np.array([box], np.float32), np.array([flip]), np.array([False]), np.array([True]))


EVAL = View()
FLIP = View(flip="always")
CROP = View(scale=(0.25, 1.0), flip="random")


def random_crop(
    rng: np.random.Generator, width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[float, float, float, float]:
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
    aspect = min(max(width / height, ratio[0]), ratio[1]) * height / width
    w, h = min(1.0, aspect), min(1.0, 1 / aspect)
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
