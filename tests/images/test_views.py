"""What a view shows is what its geometry says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from images.pictures import noise
from tagfill.errors import TagfillError
from tagfill.images import CROP, EVAL, FLIP, STRONG, View, render
from tagfill.images.views import center_crop

SIDES = st.integers(2, 40)


def draw(view: View, width: int, height: int, seed: int = 0):
    return view.draw(np.random.default_rng(seed), width, height)


@given(st.integers(1, 20), st.integers(0, 5), st.integers(0, 5), st.booleans(), st.integers(0, 9))
def test_a_crop_shows_the_pixels_that_its_geometry_names(side, margin, more, tall, seed):
    """Each pixel of the view is the pixel of the image at the place where the geometry puts its center.

    The crop lies on whole pixels and the view is as large as the crop, so that no pixel is a mixture.
    """
    short, long = side + 2 * margin, side + 2 * (margin + more)
    width, height = (short, long) if tall else (long, short)
    geometry, image = draw(View(flip="random", flip_y="random"), width, height, seed), noise(height, width, seed)
    left, top = (width - side) / 2 / width, (height - side) / 2 / height
    geometry.box[:] = [[left, top, 1 - left, 1 - top]]
    pixels = render(Image.fromarray(image), geometry, (side, side))
    for row in range(side):
        for column in range(side):
            center = np.array([[(column + 0.5) / side, (row + 0.5) / side]])
            x, y = geometry.to_image(center)[0] * (width, height)
            assert (x % 1, y % 1) == pytest.approx((0.5, 0.5), abs=1e-4)
            assert np.abs(pixels[row, column].astype(int) - image[int(y), int(x)]).max() <= 1


@given(SIDES, SIDES, SIDES, SIDES)
def test_center_crop_has_the_aspect_and_the_middle_of_the_image(width, height, w, h):
    left, top, right, bottom = center_crop(width, height, w / h)
    assert (right - left) * width / ((bottom - top) * height) == pytest.approx(w / h)
    assert left + right == pytest.approx(1)
    assert top + bottom == pytest.approx(1)
    assert max(right - left, bottom - top) == pytest.approx(1)


def test_the_evaluation_view_shows_everything():
    pixels = noise(6, 9)
    assert np.array_equal(render(Image.fromarray(pixels), draw(EVAL, 9, 6), (6, 9)), pixels)


def test_flips_mirror_the_view():
    pixels, image = noise(6, 9), Image.fromarray(noise(6, 9))
    assert np.array_equal(render(image, draw(FLIP, 9, 6), (6, 9)), pixels[:, ::-1])
    upside_down = View(flip_y="always")
    assert np.array_equal(render(image, draw(upside_down, 9, 6), (6, 9)), pixels[::-1])
    assert np.array_equal(render(image, draw(View(flip="always", flip_y="always"), 9, 6), (6, 9)), pixels[::-1, ::-1])


def test_random_flips_are_even_and_independent():
    view = View(flip="random", flip_y="random")
    rng = np.random.default_rng(0)
    drawn = [view.draw(rng, 9, 6) for _ in range(2000)]
    counts = np.zeros((2, 2))
    for geometry in drawn:
        counts[int(geometry.flip_x[0]), int(geometry.flip_y[0])] += 1
    assert counts / 2000 == pytest.approx(np.full((2, 2), 0.25), abs=0.04)


def test_a_flip_that_is_certain_draws_nothing():
    rng, other = np.random.default_rng(0), np.random.default_rng(0)
    View(flip="always", flip_y="never").draw(rng, 9, 6)
    assert rng.random() == other.random()


@given(SIDES, SIDES, st.integers(0, 1000))
def test_random_crops_lie_in_the_image_and_cover_what_they_should(width, height, seed):
    view = View(scale=(0.2, 0.6), ratio=(0.5, 2.0))
    left, top, right, bottom = draw(view, width, height, seed).box[0].astype(float)
    assert 0 <= left < right <= 1 + 1e-6
    assert 0 <= top < bottom <= 1 + 1e-6
    aspect = (right - left) * width / ((bottom - top) * height)
    assert 0.5 - 1e-4 <= aspect <= 2 + 1e-4


def test_only_strong_views_are_inexact():
    assert [bool(draw(view, 9, 6).exact[0]) for view in (EVAL, FLIP, CROP, STRONG)] == [True, True, True, False]


def test_strong_view_has_the_geometry_of_the_crop():
    assert np.array_equal(draw(STRONG, 90, 60).box, draw(CROP, 90, 60).box)


@pytest.mark.parametrize(
    "options",
    [
        {"flip": "sometimes"},
        {"flip_y": "yes"},
        {"scale": (0.0, 1.0)},
        {"scale": (0.9, 0.5)},
        {"scale": (0.5, 1.5)},
        {"ratio": (0.0, 1.0)},
    ],
    ids=str,
)
def test_invalid_views_are_refused(options):
    with pytest.raises(TagfillError):
        View(**options)
