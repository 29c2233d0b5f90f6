"""From an image's name to the pixels and the geometry of one view, or of a weak and a strong one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.draws import generator, seed_of
from tagfill.images.decode import open_image
from tagfill.images.geometry import Geometry
from tagfill.images.roots import Root
from tagfill.images.strong import strengthen
from tagfill.images.views import View, render


def look(
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
        `pixels, geometry = look(open_root("photos"), "0001.jpg", CROP, (224, 224), seed=7, epoch=3)`
    """
    encoded = open_image(root, name)
    rng = generator(seed, "view", epoch, index, number)
    geometry = view.draw(rng, encoded.width, encoded.height, aspect=size[1] / size[0])
    pixels = render(encoded.decode(shrink_to=needed(geometry, size)), geometry, size)
    if view.strong:
        pixels = strengthen(pixels, seed_of(seed, "strong", epoch, index, number))
    return pixels, geometry


def look_twice(
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

    Each is what `look` gives at the same address, for the view and for the view with `strong`.

    Returns:
        2×height×width×3 pixels, and the geometry of both.
    """
    weak, geometry = look(root, name, view, size, seed=seed, epoch=epoch, index=index, number=number)
    strong = strengthen(weak, seed_of(seed, "strong", epoch, index, number))
    both = geometry.take(np.array([0, 0]))
    both.exact[1] = False
    return np.stack([weak, strong]), both


def needed(geometry: Geometry, size: tuple[int, int]) -> tuple[float, float]:
    """Width and height that the whole image needs, for the crop of one view to have as many pixels as the view.

    >>> needed(Geometry.whole(1), (224, 448))
    (448.0, 224.0)
    """
    left, top, right, bottom = geometry.box[0].tolist()
    return size[1] / (right - left), size[0] / (bottom - top)
