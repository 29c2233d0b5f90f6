"""Strong views: the same from any process and thread, and torch's generator untouched."""

from __future__ import annotations

import hashlib
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from images.pictures import encode, noise, photo, write
from tagfill.images import CROP, STRONG, load_view
from tagfill.images.views import cutout, distort, randaugment

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


def test_generator_of_torch_is_left_as_it_was():
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


def test_hole_is_one_rectangle_of_one_colour_up_to_half_the_sides():
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


def test_look_draws_a_strong_view_from_its_address(tmp_path):
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
