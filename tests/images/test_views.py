"""A view shows what its geometry says, and draws only from its address."""

from __future__ import annotations

import hashlib
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from images.pictures import encode, noise, photo, write
from reference.resize import bicubic
from tagfill.errors import TagfillError
from tagfill.images import CROP, EVAL, FLIP, STRONG, Geometry, View, load_view, render
from tagfill.images.views import center_crop, crop_of_resized, cutout, distort, randaugment, random_crop
from tagfill.rng import generator

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


def test_a_crop_of_a_resized_image_is_as_large_as_the_view():
    """He et al.: the short side becomes 256 to 480 pixels, and 224×224 of them are cut out, anywhere."""
    rng, sides, places = np.random.default_rng(0), set(), []
    for width, height in [(500, 375), (375, 500), (224, 224)] * 300:
        left, top, right, bottom = crop_of_resized(rng, width, height, (256, 480), (224, 224))
        assert (right - left) * width == pytest.approx((bottom - top) * height)  # square pixels
        sides.add(round(224 * min(width, height) / ((right - left) * width)))
        places.append((left / (1 - right + left), top / (1 - bottom + top)))
    assert (min(sides), max(sides)) == (256, 480)
    assert np.quantile(places, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.05)
    assert crop_of_resized(rng, 100, 50, (64, 64), (224, 224)) == (0, 0, 1, 1)  # smaller than the view
    geometry = View(scale=None, short_side=(448, 448)).draw(rng, 640, 320, (224, 112))
    assert (geometry.box[0, 2:] - geometry.box[0, :2]).tolist() == [0.125, 0.5]


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


def test_a_crop_of_whole_pixels_is_the_resized_slice_except_its_rim():
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


# Strong views are the same in any process and thread


SEEDS = list(range(30))
PICTURE = np.asarray(photo(48, 64))


def digest(seed: int) -> str:
    return hashlib.sha256(distort(PICTURE, seed).tobytes()).hexdigest()


def test_threads_see_the_same():
    expected = [digest(seed) for seed in SEEDS]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(digest, SEEDS * 3)) == expected * 3


@pytest.mark.parametrize(("method", "processes"), [("fork", 2), ("spawn", 1)])
def test_processes_see_the_same(method, processes):
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context(method)) as pool:
        found = list(pool.map(randaugment, [PICTURE] * 5, range(5)))
    assert all(np.array_equal(pixels, randaugment(PICTURE, seed)) for seed, pixels in enumerate(found))


def test_seeds_differ():
    assert len({digest(seed) for seed in SEEDS}) == len(SEEDS)


def test_state_of_torchs_generator_is_restored():
    torch.manual_seed(3)
    expected = torch.rand(5)
    torch.manual_seed(3)
    distort(PICTURE, 1)
    assert torch.equal(torch.rand(5), expected)


def test_state_of_the_generator_does_not_matter():
    torch.manual_seed(3)
    first = digest(1)
    torch.rand(7)
    assert digest(1) == first


def test_pixels_given_are_not_changed():
    before = PICTURE.copy()
    distort(PICTURE, 2)
    assert np.array_equal(PICTURE, before)


@pytest.mark.parametrize("shape", [(48, 64), (33, 17), (1, 1)])
def test_shape_and_type_are_kept(shape):
    for seed in range(10):
        pixels = distort(noise(*shape), seed)
        assert (pixels.shape, pixels.dtype) == ((*shape, 3), np.uint8)


def test_hole_is_one_rectangle_of_one_color_up_to_half_the_sides():
    for seed in range(50):
        pixels = cutout(PICTURE, np.random.default_rng(seed))
        rows, columns = np.nonzero((pixels != PICTURE).any(-1))
        hole = pixels[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert len(np.unique(hole.reshape(-1, 3), axis=0)) == 1
        assert hole.shape[0] <= 24
        assert hole.shape[1] <= 32


def test_hole_covers_a_fifth_of_the_view_on_average():
    """Along a side, a hole of half the length that is centred anywhere keeps 7/8 of itself inside, 7/16 of the side."""
    blank = np.full((64, 64, 3), 7, np.uint8)
    rng = np.random.default_rng(0)
    covered = np.mean([(cutout(blank, rng) != 7).any(-1).mean() for _ in range(3000)])
    assert covered == pytest.approx((7 / 16) ** 2, abs=0.005)


def test_load_view_draws_a_strong_view_from_its_address(tmp_path):
    write(tmp_path, "a.png", encode(photo(40, 60)))
    address = {"seed": 7, "epoch": 2, "index": 5, "number": 1}
    pixels, geometry = load_view(tmp_path, "a.png", STRONG, (32, 32), **address)
    assert np.array_equal(load_view(tmp_path, "a.png", STRONG, (32, 32), **address)[0], pixels)
    weak, exact = load_view(tmp_path, "a.png", CROP, (32, 32), **address)
    assert np.array_equal(geometry.box, exact.box)
    assert not np.array_equal(pixels, weak)
    for changed in address:
        other, _ = load_view(tmp_path, "a.png", STRONG, (32, 32), **{**address, changed: 9})
        assert not np.array_equal(other, pixels)


def test_images_are_used_without_torch():
    code = "import sys, tagfill.images; print({'torch', 'torchvision', 'fsspec'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "set()"
