"""RandAugment of pytorch-randaugment: strengths typed from its list of operations, effects computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tagfill.errors import TagfillError
from tagfill.images import View
from tagfill.images.randaugment import OPERATIONS, pytorch_randaugment
from tagfill.images.views import distort

RANGES = {  # strength at magnitudes 0 and 30
    "rotate": (0, 30), "posterize": (0, 4), "solarize": (0, 256), "solarize_add": (0, 110), "color": (0.1, 1.9),
    "contrast": (0.1, 1.9), "brightness": (0.1, 1.9), "sharpness": (0.1, 1.9), "shear_x": (0, 0.3), "shear_y": (0, 0.3),
    "gray_square": (0, 40), "translate_x": (0, 100), "translate_y": (0, 100),
}  # fmt: skip
WITHOUT_STRENGTH = {"autocontrast", "equalize", "invert"}
PICTURE = np.random.default_rng(0).integers(0, 256, (80, 96, 3), dtype=np.uint8)


def applied(name: str, seed: int = 0) -> np.ndarray:
    """One operation at magnitude 9 of 30."""
    operation, low, high = OPERATIONS[name]
    return np.array(operation(Image.fromarray(PICTURE), low + 9 / 30 * (high - low), np.random.default_rng(seed)))


def test_operations_and_ranges_are_those_of_the_package():
    assert {name: (low, high) for name, (_, low, high) in OPERATIONS.items() if name in RANGES} == RANGES
    assert set(OPERATIONS) == RANGES.keys() | WITHOUT_STRENGTH


def test_values_change_as_computed_by_hand():
    value = PICTURE.astype(int)
    brighter = np.minimum(value + 33, 255)
    expected = {
        "invert": 255 - value,
        "posterize": value // 128 * 128,  # one bit
        "solarize": np.where(value < 76.8, value, 255 - value),
        "solarize_add": np.where(brighter < 128, brighter, 255 - brighter),
        "brightness": 0.64 * value,
    }
    for name, pixels in expected.items():
        np.testing.assert_allclose(applied(name), pixels, atol=1, err_msg=name)
    gray = np.asarray(Image.fromarray(PICTURE).convert("L")).astype(int)
    np.testing.assert_allclose(applied("color"), 0.64 * value + 0.36 * gray[..., None], atol=1)
    np.testing.assert_allclose(applied("contrast"), 0.64 * value + 0.36 * round(gray.mean()), atol=1)


def test_pixels_move_thirty_to_either_side_and_leave_black():
    for name, axis in (("translate_x", 1), ("translate_y", 0)):
        ways = set()
        for seed in range(8):
            found = np.moveaxis(applied(name, seed), axis, 0)
            moved = np.moveaxis(PICTURE, axis, 0)
            ahead = bool((found[:30] == 0).all())
            assert np.array_equal(found[30:], moved[:-30]) if ahead else np.array_equal(found[:-30], moved[30:])
            ways.add(ahead)
        assert ways == {True, False}


def test_rotation_and_shear_go_either_way_by_nine_degrees_and_nine_hundredths():
    turned = {np.asarray(Image.fromarray(PICTURE).rotate(degrees)).tobytes() for degrees in (9, -9)}
    assert {applied("rotate", seed).tobytes() for seed in range(8)} == turned
    for name, axes in (("shear_x", (0, 1)), ("shear_y", (1, 0))):
        plain, found = PICTURE.transpose(*axes, 2)[50], applied(name).transpose(*axes, 2)[50]
        moved = 5  # a source position of x + 0.5 ± 0.09 × 50.5, rounded down
        assert any(np.array_equal(found[10:-10], np.roll(plain, way, 0)[10:-10]) for way in (moved, -moved)), name


def test_a_gray_square_of_twelve_pixels():
    found = applied("gray_square", 3)
    rows, columns = np.nonzero((found != PICTURE).any(-1))
    assert (found[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] == (125, 123, 114)).all()
    assert max(np.ptp(rows), np.ptp(columns)) == 12


def test_two_operations_that_only_the_seed_decides():
    views = [pytorch_randaugment(PICTURE, seed) for seed in range(40)]
    assert all(np.array_equal(view, pytorch_randaugment(PICTURE, seed)) for seed, view in enumerate(views))
    assert len({view.tobytes() for view in views}) > 35
    assert not np.array_equal(distort(PICTURE, 1), distort(PICTURE, 1, "pytorch-randaugment"))


def test_another_name_is_refused():
    with pytest.raises(TagfillError, match="one of torchvision, pytorch-randaugment"):
        View(strong=True, randaugment="timm")
