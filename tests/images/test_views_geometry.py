from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reference.resize import bicubic
from tagfill.images import CROP, EVAL, FLIP, Geometry, View, render
from tagfill.images.views import random_crop
from tagfill.rng import generator

modest = settings(max_examples=60, deadline=None)
sides = st.integers(20, 2000)
PIXELS = np.random.default_rng(0).integers(64, 192, (16, 24, 3), dtype=np.uint8)  # overshoots stay within a byte
IMAGE = Image.fromarray(PIXELS)


def view(
    left: float, top: float, right: float, bottom: float, *, flip_x: bool = False, flip_y: bool = False
) -> Geometry:
    box = np.array([[left, top, right, bottom]], np.float32)
    return Geometry(box, np.array([flip_x]), np.array([flip_y]), np.array([True]))


def resized(image: Image.Image, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(image.resize((size[1], size[0]), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("size", [(16, 24), (7, 9), (40, 31)])
def test_the_whole_image_is_a_plain_resize(size):
    np.testing.assert_array_equal(render(IMAGE, Geometry.whole(1), size), resized(IMAGE, size))


def test_the_whole_image_at_its_own_size_is_the_image():
    np.testing.assert_array_equal(render(IMAGE, Geometry.whole(1), (16, 24)), PIXELS)


def test_a_crop_at_its_own_size_is_the_slice():
    shown = render(IMAGE, view(0.25, 0.25, 0.75, 0.75), (8, 12))
    np.testing.assert_array_equal(shown, PIXELS[4:12, 6:18])


def test_a_crop_of_whole_pixels_is_the_resized_slice_but_for_its_rim():
    """Pixels beside the crop take part in its outermost ones, within the reach of the filter: two source pixels."""
    shown = render(IMAGE, view(0.25, 0.25, 0.75, 0.75), (16, 24)).astype(int)
    expected = resized(IMAGE.crop((6, 4, 18, 12)), (16, 24))
    assert np.abs(shown - expected)[4:-4, 4:-4].max() <= 1


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((0, 0, 1, 1), (9, 8)),
        ((0.13, 0.2, 0.91, 0.77), (7, 10)),
        ((0.4, 0.1, 0.6, 0.3), (8, 8)),
        ((0, 0.5, 0.5, 1), (5, 4)),
    ],
    ids=["shrunk", "crop shrunk", "crop enlarged", "corner"],
)
def test_pixels_equal_the_formula(box, size):
    """Within the rounding to bytes after each of the two directions."""
    left, top, right, bottom = np.array(box, np.float32).astype(float)
    pixel_box = (left * 24, top * 16, right * 24, bottom * 16)
    shown = render(IMAGE, view(*box), size)
    for channel in range(3):
        expected = np.array(bicubic(PIXELS[:, :, channel].tolist(), pixel_box, *size))
        assert np.abs(shown[:, :, channel] - expected).max() < 1.3


@pytest.mark.parametrize(("flip_x", "flip_y"), [(True, False), (False, True), (True, True)])
def test_flips_mirror_the_crop(flip_x, flip_y):
    box = (0.1, 0.2, 0.7, 0.9)
    plain = render(IMAGE, view(*box), (8, 10))
    step_x, step_y = (-1 if flip else 1 for flip in (flip_x, flip_y))
    np.testing.assert_array_equal(
        render(IMAGE, view(*box, flip_x=flip_x, flip_y=flip_y), (8, 10)), plain[::step_y, ::step_x]
    )


def test_a_point_of_the_image_is_found_where_the_geometry_says():
    """One white pixel, seen through a mirrored crop."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[10, 45] = 255
    geometry = view(0.5, 0.125, 0.9, 0.5, flip_x=True)  # 15×24 pixels, shown three times as large
    shown = render(Image.fromarray(pixels), geometry, (45, 72))[:, :, 0]
    x, y = geometry.to_view(np.array([[45.5 / 60, 10.5 / 40]]))[0]
    assert np.unravel_index(shown.argmax(), shown.shape) == (int(y * 45), int(x * 72)) == (16, 25)


@modest
@given(width=sides, height=sides, seed=st.integers(0, 10**6))
def test_crops_lie_inside_the_image(width, height, seed):
    box = CROP.draw(generator(seed, "view"), width, height).box[0]
    assert 0 <= box[0] < box[2] <= 1
    assert 0 <= box[1] < box[3] <= 1


@modest
@given(width=sides, height=sides, seed=st.integers(0, 10**6))
def test_the_aspect_of_crops_is_within_range(width, height, seed):
    left, top, right, bottom = random_crop(generator(seed, "view"), width, height, (0.25, 1.0), (3 / 4, 4 / 3))
    aspect = (right - left) * width / ((bottom - top) * height)
    assert 3 / 4 * 0.999 <= aspect <= 4 / 3 * 1.001


@modest
@given(width=st.integers(300, 399), height=st.integers(300, 399), seed=st.integers(0, 10**6))
def test_the_area_of_crops_is_within_range(width, height, seed):
    """For images that are not long and narrow, where the largest crop that fits may cover less."""
    left, top, right, bottom = random_crop(generator(seed, "view"), width, height, (0.25, 0.5), (3 / 4, 4 / 3))
    assert 0.25 * 0.999 <= (right - left) * (bottom - top) <= 0.5 * 1.001


def test_crops_use_the_whole_range_of_area_and_aspect():
    boxes = np.array(
        [random_crop(generator(1, "view", index=i), 300, 300, (0.25, 1.0), (3 / 4, 4 / 3)) for i in range(500)]
    )
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert (width * height).min() < 0.3
    assert (width * height).max() > 0.9
    assert (width / height).min() < 0.8
    assert (width / height).max() > 1.25


def test_a_long_image_gets_the_largest_central_crop():
    """Of 1000×100 pixels with an aspect of at most 4/3 that is 133 columns in the middle."""
    box = random_crop(generator(0, "view"), 1000, 100, (0.5, 1.0), (3 / 4, 4 / 3))
    assert box == pytest.approx((0.5 - 0.2 / 3, 0, 0.5 + 0.2 / 3, 1))


@pytest.mark.parametrize(
    "change", [{"seed": 8}, {"epoch": 3}, {"index": 5}, {"view": 1}], ids=lambda change: next(iter(change))
)
def test_a_crop_belongs_to_its_address(change):
    address = {"seed": 7, "purpose": "view", "epoch": 2, "index": 4, "view": 0}
    first, again, other = (CROP.draw(generator(**a), 300, 200).box for a in (address, address, {**address, **change}))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_half_of_random_views_are_mirrored():
    flips = [bool(CROP.draw(generator(0, "view", index=i), 30, 20).flip_x[0]) for i in range(400)]
    assert 150 < sum(flips) < 250


@pytest.mark.parametrize(("plain", "flip"), [(EVAL, False), (FLIP, True)], ids=["eval", "flip"])
def test_plain_views_show_everything(plain: View, flip):
    geometry = plain.draw(generator(0, "view"), 30, 20)
    assert geometry.box.tolist() == [[0, 0, 1, 1]]
    assert geometry.flip_x.tolist() == [flip]
    assert geometry.flip_y.tolist() == [False]
    assert geometry.exact.all()
