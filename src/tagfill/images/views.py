"""The size of a network's input, as people write it: the side of a square, or height and width.

Strong views: a hole is cut, then RandAugment distorts shapes and colours.

RandAugment (Cubuk et al., 2020) with two operations of magnitude 9 is torchvision's. Cutout (DeVries and Taylor, 2017)
is one rectangle of half the height and half the width, of a random colour, centred anywhere in the view, so that up to
three quarters of it can lie outside. The hole comes first and is distorted with the rest, as in the published
multi-label training code.

Views of an image: what to show of it, and the pixels together with the geometry that produced them.

From an image's name to the pixels and the geometry of one view, or of a weak and a strong one.

Finding the images of a dataset that cannot be decoded, before a run does.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.errors import ImageError, TagfillError
from tagfill.images.decode import decode, open_image
from tagfill.images.geometry import Geometry
from tagfill.images.roots import Root
from tagfill.progress import SILENT, Progress
from tagfill.rng import generator, seed_of

_LEAST = 32


def input_size(value: int | str | Sequence[int]) -> int | tuple[int, int]:
    """The side of a square, or (height, width).

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
    if len(sides) not in (1, 2) or min(sides) < _LEAST:
        raise TagfillError(
            f"An image size cannot be {value!r}; give a side of {_LEAST} or more, or height and width as in 224x320."
        )
    return sides[0] if len(set(sides)) == 1 else (sides[0], sides[1])


OPERATIONS = 2
MAGNITUDE = 9
HOLE = 0.5

_one_at_a_time = threading.Lock()  # torchvision draws from the one generator of the process


def _renew_lock() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)  # a thread that the child does not have may have held it


def distort(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """A strong version of a view.

    Args:
        pixels: H×W×3 uint8.
        seed: decides everything, whatever process or thread asks.

    Returns:
        H×W×3 uint8.
    """
    return randaugment(cutout(pixels, generator(seed, "cutout")), seed)


def cutout(pixels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Cover one rectangle with a random colour; the part of it that lies outside is lost."""
    height, width, _ = pixels.shape
    h, w = round(HOLE * height), round(HOLE * width)
    top, left = int(rng.integers(height)) - h // 2, int(rng.integers(width)) - w // 2
    covered = pixels.copy()
    covered[max(top, 0) : max(top + h, 0), max(left, 0) : max(left + w, 0)] = rng.integers(0, 256, 3, dtype=np.uint8)
    return covered


def randaugment(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Two random operations of torchvision's RandAugment; torch's own generator is left as it was found."""
    import torch

    transform = _transform()
    with _one_at_a_time, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators too
        distorted = transform(Image.fromarray(pixels))
    return np.array(distorted)


@cache
def _transform() -> Any:
    from tagfill.torchvision_remedy import import_torchvision

    import_torchvision()
    from torchvision.transforms import v2

    return v2.RandAugment(num_ops=OPERATIONS, magnitude=MAGNITUDE)


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
        strong: distort shapes and colours after crop and flips (see `tagfill.images.views`); the geometry is then
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
            box = center_crop(width, height, aspect, self.share)
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
    return center_crop(width, height, min(max(width / height, ratio[0]), ratio[1]))


def center_crop(width: int, height: int, aspect: float, share: float = 1.0) -> Box:
    """The central box of an aspect, in pixels, whose sides are `share` of those of the largest one.

    >>> center_crop(200, 100, aspect=1.0)
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
    """One view of an image.

    Everything random about it comes from (seed, epoch, index, number), whatever process or thread asks. Of a large
    JPEG, no more is decoded than the view needs.

    Args:
        root: the image root, or the folder that it is.
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
    encoded = open_image(root, name)
    rng = generator(seed, "view", epoch, index, number)
    geometry = view.draw(rng, encoded.width, encoded.height, aspect=size[1] / size[0])
    pixels = render(encoded.decode(shrink_to=_required_size(geometry, size)), geometry, size)
    if view.strong:
        pixels = distort(pixels, seed_of(seed, "strong", epoch, index, number))
    return pixels, geometry


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
    """A weak and a strong view of an image, decoded once: the view, and the same crop and flips distorted.

    Each is what `load_view` returns at the same address, for the view and for the view with `strong`.

    Returns:
        2×height×width×3 pixels, and the geometry of both.
    """
    weak, geometry = load_view(root, name, view, size, seed=seed, epoch=epoch, index=index, number=number)
    strong = distort(weak, seed_of(seed, "strong", epoch, index, number))
    both = geometry.take(np.array([0, 0]))
    both.exact[1] = False
    return np.stack([weak, strong]), both


def _required_size(geometry: Geometry, size: tuple[int, int]) -> tuple[float, float]:
    """Width and height that the whole image needs, for the crop of one view to have as many pixels as the view.

    >>> _required_size(Geometry.whole(1), (224, 448))
    (448.0, 224.0)
    """
    left, top, right, bottom = geometry.box[0].tolist()
    return size[1] / (right - left), size[0] / (bottom - top)


_CHUNK = 16

_root: Root | Path | None = None  # of a worker process


def check_images(
    root: Root | Path, names: Sequence[str], *, workers: int = 0, progress: Progress = SILENT
) -> list[ImageError]:
    """Decode every image completely and collect what is wrong.

    Args:
        root: the image root, or the folder that it is.
        names: of the images.
        workers: processes that decode; 0 decodes in this one.
        progress: told about each image.

    Returns:
        One error for each bad image, in the order of the names.

    Raises:
        TagfillError: if a worker process was killed, as happens when memory runs out.

    Example:
        `root = open_root("photos"); bad = check_images(root, root.names(), workers=2)`
    """
    bad = []
    with progress.bar("decoding", len(names), "img") as bar:
        for found, count in _checked(root, names, workers):
            bad += found
            bar.advance(count)
            if found:
                bar.note(f"{len(bad)} bad")
    return bad


def _checked(root: Root | Path, names: Sequence[str], workers: int) -> Iterator[tuple[list[ImageError], int]]:
    """The bad images of each chunk of names, and how many names were looked at."""
    chunks = [names[at : at + _CHUNK] for at in range(0, len(names), _CHUNK)]
    if workers == 0:
        yield from ((_decode_all(root, chunk), len(chunk)) for chunk in chunks)
        return
    pool = ProcessPoolExecutor(workers, initializer=_start, initargs=(root,))
    try:
        yield from zip(pool.map(_decode_in_worker, chunks), map(len, chunks), strict=True)
    except BrokenProcessPool:
        raise TagfillError(
            "A process that decoded images was killed, perhaps because memory ran out; try fewer workers."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _decode_all(root: Root | Path, names: Sequence[str]) -> list[ImageError]:
    bad = []
    for name in names:
        try:
            decode(root, name)
        except ImageError as error:
            bad.append(error)
    return bad


def _start(root: Root | Path) -> None:
    global _root
    _root = root


def _decode_in_worker(names: Sequence[str]) -> list[ImageError]:
    assert _root is not None
    return _decode_all(_root, names)
