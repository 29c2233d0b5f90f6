"""Views of an image: which part of it to show, and the pixels together with the geometry that produced them.

    View.draw     crop box and flips of one view, as a `Geometry`
    render        the pixels of that geometry
    distort       Cutout and RandAugment, for strong views
    load_view     all of these, from the name of an image

Strong views cut a hole and then distort shapes and colors. RandAugment (Cubuk et al., 2020) with two operations of
magnitude 9 is torchvision's, or that of pytorch-randaugment (`tagfill.images.randaugment`). Cutout (DeVries and Taylor,
2017) is one rectangle of half the height and half the width, of a random color, centered anywhere in the view, so that
up to three quarters of it can lie outside. The hole comes first and is distorted with the rest, as in the published
multi-label training code.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.errors import TagfillError
from tagfill.images.decode import EncodedImage, read_content
from tagfill.images.geometry import Geometry
from tagfill.images.randaugment import pytorch_randaugment
from tagfill.images.roots import Root
from tagfill.images.stoppable import with_limits
from tagfill.rng import generator, seed_of

_MIN_SIDE = 32
_FLIPS = ("never", "always", "random")
_RANDAUGMENTS = ("torchvision", "pytorch-randaugment")
_OPERATIONS, _MAGNITUDE = 2, 9  # of RandAugment
_HOLE = 0.5  # side of Cutout's rectangle, relative to the view

Box = tuple[float, float, float, float]


def input_size(value: int | str | Sequence[int]) -> int | tuple[int, int]:
    """Parse an image size: the side of a square, or (height, width).

    >>> input_size("224x320"), input_size([224, 320]), input_size("224"), input_size((320, 320))
    ((224, 320), (224, 320), 224, 320)
    >>> input_size("wide")
    Traceback (most recent call last):
    tagfill.errors.TagfillError: An image size cannot be 'wide'; give a side of 32 or more, or height and width as in \
224x320.
    """
    try:
        if isinstance(value, str):
            sides = [int(side) for side in value.lower().split("x")]
        else:
            sides = [operator.index(side) for side in ([value] if isinstance(value, int) else value)]
    except (TypeError, ValueError):
        sides = []
    if len(sides) not in (1, 2) or min(sides) < _MIN_SIDE:
        raise TagfillError(
            f"An image size cannot be {value!r}; give a side of {_MIN_SIDE} or more, or height and width as in 224x320."
        )
    return sides[0] if len(set(sides)) == 1 else (sides[0], sides[1])


@dataclass(frozen=True)
class View:
    """What a view shows of an image.

    Attributes:
        scale: range of the share of the image's area that a random crop covers; None shows the whole image.
        ratio: range of the crop's width over its height, in pixels.
        short_side: resize the image so that its short side has a random length in this range, in pixels, and crop the
            size of the view from it, as He et al. (CVPR 2016) do; instead of `scale` and `ratio`.
        flip: mirror left to right `never`, `always`, or half of the time (`random`).
        flip_y: mirror top to bottom, likewise.
        strong: distort shapes and colors after crop and flips; the geometry is then not exact.
        randaugment: whose operations distort a strong view, `torchvision` or `pytorch-randaugment`.

    >>> View(scale=(0.25, 1.0), flip="random", strong=True).strong
    True
    """

    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    short_side: tuple[int, int] | None = None
    flip: str = "never"
    flip_y: str = "never"
    strong: bool = False
    randaugment: str = "torchvision"

    def __post_init__(self) -> None:
        if self.randaugment not in _RANDAUGMENTS:
            raise TagfillError(f"The RandAugment of a view is one of {', '.join(_RANDAUGMENTS)}, but this is {self}.")
        if self.flip not in _FLIPS or self.flip_y not in _FLIPS:
            raise TagfillError(f"A flip of a view is one of {', '.join(_FLIPS)}, but this is {self}.")
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise TagfillError(f"The scale of a view is a range of shares of the area within (0, 1], not {self.scale}.")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise TagfillError(f"The ratio of a view is a range of positive numbers, not {self.ratio}.")
        if self.short_side is not None and not 0 < self.short_side[0] <= self.short_side[1]:
            raise TagfillError(f"The short side of a view is a range of numbers of pixels, not {self.short_side}.")

    def draw(self, rng: np.random.Generator, width: int, height: int, size: tuple[int, int] = (224, 224)) -> Geometry:
        """Draw the geometry of one view of a width×height image.

        Args:
            rng: the random numbers; a flip that is not left to chance draws none.
            width: of the image in pixels; only the ratio of width and height matters.
            height: of the image in pixels.
            size: height and width of the view in pixels; matters with `short_side` only.
        """
        box: Box = (0.0, 0.0, 1.0, 1.0)
        if self.short_side is not None:
            box = crop_of_resized(rng, width, height, self.short_side, size)
        elif self.scale is not None:
            box = random_crop(rng, width, height, self.scale, self.ratio)
        flips = [
            flip == "always" or (flip == "random" and bool(rng.random() < 0.5)) for flip in (self.flip, self.flip_y)
        ]
        return Geometry(
            np.array([box], np.float32), np.array([flips[0]]), np.array([flips[1]]), np.array([not self.strong])
        )


EVAL = View()
FLIP = View(flip="always")
CROP = View(scale=(0.25, 1.0), flip="random")
STRONG = View(scale=(0.25, 1.0), flip="random", strong=True)


def load_view(
    root: Root | Path,
    name: str,
    view: View,
    size: tuple[int, int],
    *,
    seed: int,
    epoch: int = 0,
    index: int = 0,
    number: int = 0,
) -> tuple[NDArray[np.uint8], Geometry]:
    """Decode one view of an image.

    All random draws come from (seed, epoch, index, number), in any process or thread. A large JPEG is decoded at a
    fraction of its size if that is enough for the view.

    Args:
        root: the image root, or its folder.
        name: the image's identity.
        view: what to show.
        size: height and width of the view in pixels.
        seed: of the run.
        epoch: address of the draw.
        index: address of the draw: position of the image in its split.
        number: address of the draw: which view of the image this is.

    Returns:
        height×width×3 pixels, and the geometry of this one view.

    Raises:
        ImageError: if the image cannot be read or decoded.

    Example:
        `pixels, geometry = load_view(open_root("photos"), "0001.jpg", CROP, (224, 224), seed=7, epoch=3)`
    """
    address = (seed, "view", epoch, index, number)
    pixels, geometry = with_limits(_render_view, name, read_content(root, name), view, size, address)
    if view.strong:
        pixels = distort(pixels, seed_of(seed, "strong", epoch, index, number), view.randaugment)
    return pixels, geometry


def _render_view(
    name: str, content: bytes, view: View, size: tuple[int, int], address: tuple[int, str, int, int, int]
) -> tuple[NDArray[np.uint8], Geometry]:
    """One view of an image, without the distortions of a strong one."""
    encoded = EncodedImage(name, content)
    geometry = view.draw(generator(*address), encoded.width, encoded.height, size)
    return render(encoded.decode(shrink_to=_required_size(geometry, size)), geometry, size), geometry


def load_weak_and_strong(
    root: Root | Path,
    name: str,
    view: View,
    size: tuple[int, int],
    *,
    seed: int,
    epoch: int = 0,
    index: int = 0,
    number: int = 0,
) -> tuple[NDArray[np.uint8], Geometry]:
    """Decode an image once for a weak view and a strong view: the same crop and flips, distorted.

    Each equals what `load_view` returns at the same address, for `view` and for `view` with `strong`.

    Returns:
        2×height×width×3 pixels, and the geometry of both.
    """
    weak, geometry = load_view(root, name, view, size, seed=seed, epoch=epoch, index=index, number=number)
    strong = distort(weak, seed_of(seed, "strong", epoch, index, number), view.randaugment)
    both = geometry.take(np.array([0, 0]))
    both.exact[1] = False
    return np.stack([weak, strong]), both


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


def random_crop(
    rng: np.random.Generator, width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """A random box of a given area and aspect; after ten boxes that do not fit, the largest central one that does.

    Args:
        rng: the random numbers.
        width: of the image in pixels; only the aspect matters.
        height: of the image in pixels.
        scale: range of the share of the area.
        ratio: range of the crop's aspect in pixels; its logarithm is drawn uniformly.

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
    return center_crop(width, height, min(max(width / height, ratio[0]), ratio[1]))


def crop_of_resized(
    rng: np.random.Generator, width: int, height: int, short_side: tuple[int, int], size: tuple[int, int]
) -> Box:
    """A random box that has a given size once the image is resized to a random short side.

    Args:
        rng: the random numbers.
        width: of the image in pixels; only the aspect matters.
        height: of the image in pixels.
        short_side: range of the short side after resizing, both ends included.
        size: height and width of the box in pixels of the resized image, or all of it if that is smaller.

    Returns:
        left, top, right, bottom, relative to the image.

    Example:
        >>> left, top, right, bottom = crop_of_resized(np.random.default_rng(0), 640, 320, (448, 448), (224, 224))
        >>> right - left, bottom - top
        (0.25, 0.5)
    """
    scale = int(rng.integers(short_side[0], short_side[1], endpoint=True)) / min(width, height)
    w, h = min(1.0, size[1] / (width * scale)), min(1.0, size[0] / (height * scale))
    left, top = float(rng.uniform(0, 1 - w)), float(rng.uniform(0, 1 - h))
    return left, top, left + w, top + h


def center_crop(width: int, height: int, aspect: float) -> Box:
    """The largest central box of an aspect, in pixels.

    >>> center_crop(200, 100, aspect=1.0)
    (0.25, 0.0, 0.75, 1.0)
    """
    relative = aspect * height / width
    w, h = min(1.0, relative), min(1.0, 1 / relative)
    return (1 - w) / 2, (1 - h) / 2, (1 + w) / 2, (1 + h) / 2


def _required_size(geometry: Geometry, size: tuple[int, int]) -> tuple[float, float]:
    """Width and height that the whole image needs for the crop of one view to have as many pixels as the view.

    >>> _required_size(Geometry.whole(1), (224, 448))
    (448.0, 224.0)
    """
    left, top, right, bottom = geometry.box[0].tolist()
    return size[1] / (right - left), size[0] / (bottom - top)


def distort(pixels: NDArray[np.uint8], seed: int, operations: str = "torchvision") -> NDArray[np.uint8]:
    """The strong version of a view: Cutout, then RandAugment.

    Args:
        pixels: H×W×3 uint8.
        seed: decides everything, in any process or thread.
        operations: whose RandAugment, `torchvision` or `pytorch-randaugment`.

    Returns:
        H×W×3 uint8.
    """
    augment = pytorch_randaugment if operations == "pytorch-randaugment" else randaugment
    return augment(cutout(pixels, generator(seed, "cutout")), seed)


def cutout(pixels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Cover one rectangle with a random color; parts of it outside the view are lost."""
    height, width, _ = pixels.shape
    h, w = round(_HOLE * height), round(_HOLE * width)
    top, left = int(rng.integers(height)) - h // 2, int(rng.integers(width)) - w // 2
    covered = pixels.copy()
    covered[max(top, 0) : max(top + h, 0), max(left, 0) : max(left + w, 0)] = rng.integers(0, 256, 3, dtype=np.uint8)
    return covered


def randaugment(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Two random operations of torchvision's RandAugment; the state of torch's generator is restored afterwards."""
    import torch

    transform = _randaugment_transform()
    with _torch_generator, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators too
        distorted = transform(Image.fromarray(pixels))
    return np.array(distorted)


@cache
def _randaugment_transform() -> Any:
    from tagfill.torchvision_remedy import import_torchvision

    import_torchvision()
    from torchvision.transforms import v2

    return v2.RandAugment(num_ops=_OPERATIONS, magnitude=_MAGNITUDE)


_torch_generator = threading.Lock()  # torchvision draws from the one generator of the process


def _renew_lock() -> None:
    global _torch_generator
    _torch_generator = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)  # the lock may be held by a thread that the child does not have
