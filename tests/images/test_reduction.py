"""Decoding a large JPEG at a fraction of its size moves nothing, and hardly changes how a view looks."""

from __future__ import annotations

import numpy as np
import pytest

from images.pictures import encode, photo, write
from tagfill.images import CROP, EVAL, Geometry, View, decode, load_view, render
from tagfill.images.views import _required_size
from tagfill.rng import generator

SIZES = [(1024, 768), (1000, 1000), (1023, 767), (1024, 767), (1020, 764), (96, 1600)]  # width, height
VIEWS = {"eval": EVAL, "crop": CROP, "small crop": View(scale=(0.02, 0.05))}


def full_view(folder, view: View, size: tuple[int, int], index: int):
    """What `load_view` shows, from the image decoded at its full size."""
    image = decode(folder, "a.jpg")
    geometry = view.draw(generator(7, "view", 0, index), image.width, image.height)
    return render(image, geometry, size), geometry


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}×{size[1]}")
def test_views_are_near_those_of_the_full_image(tmp_path, size, name):
    write(tmp_path, "a.jpg", encode(photo(size[1], size[0]), "JPEG", quality=95))
    for index in range(3):
        pixels, geometry = load_view(tmp_path, "a.jpg", VIEWS[name], (64, 64), seed=7, index=index)
        expected, expected_geometry = full_view(tmp_path, VIEWS[name], (64, 64), index)
        assert np.array_equal(geometry.box, expected_geometry.box)
        assert np.abs(pixels.astype(float) - expected).mean() < 1


@pytest.mark.parametrize(
    ("size", "shrink_to", "decoded"),
    [
        ((1024, 768), (64, 64), (256, 192)),  # an eighth would leave 96 rows, fewer than twice 64
        ((1024, 768), (64, 48), (128, 96)),
        ((1024, 768), (600, 10), (1024, 768)),
        ((1024, 766), (64, 64), (512, 383)),  # a quarter has a rest
        ((1023, 768), (64, 64), (1023, 768)),
    ],
)
def test_reduction_leaves_enough_pixels_and_no_rest(tmp_path, size, shrink_to, decoded):
    write(tmp_path, "a.jpg", encode(photo(size[1], size[0]), "JPEG"))
    assert decode(tmp_path, "a.jpg", shrink_to=shrink_to).size == decoded


@pytest.mark.parametrize("step", [2, 4, 8])
def test_reduced_pixels_are_means_of_the_full_ones(tmp_path, step):
    """An edge between two blocks of one color stays where it is, to the pixel."""
    image = photo(256, 512)
    image.paste("black", (0, 0, 256, 256))
    image.paste("white", (256, 0, 512, 256))
    write(tmp_path, "a.jpg", encode(image, "JPEG", quality=95))
    reduced = np.asarray(decode(tmp_path, "a.jpg", shrink_to=(256 / step, 128 / step)))
    assert reduced.shape[:2] == (256 // step, 512 // step)
    assert reduced[:, : 256 // step].max() < 8
    assert reduced[:, 256 // step :].min() > 247


def test_small_crop_needs_a_large_image():
    box = np.array([[0.25, 0.5, 0.5, 0.625]], np.float32)
    geometry = Geometry(box, *(np.zeros(1, bool) for _ in range(2)), np.ones(1, bool))
    assert _required_size(geometry, (100, 200)) == (800, 800)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_only_jpegs_are_reduced(tmp_path, kind):
    write(tmp_path, "a", encode(photo(256, 256), kind))
    assert decode(tmp_path, "a", shrink_to=(8, 8)).size == (256, 256)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_colors_are_reduced_too(tmp_path, mode):
    write(tmp_path, "a.jpg", encode(photo(256, 256).convert(mode), "JPEG"))
    image = decode(tmp_path, "a.jpg", shrink_to=(16, 16))
    assert (image.mode, image.size) == ("RGB", (32, 32))
