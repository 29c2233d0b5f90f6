from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycocotools import mask as coco_mask

from tagfill.dataset import masks
from tagfill.formats import rasterize

PIXELS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 40), st.integers(1, 40)))


def judged(pixels):
    return coco_mask.encode(np.asfortranarray(pixels.astype(np.uint8)))["counts"]


@settings(max_examples=60, deadline=None)
@given(PIXELS)
def test_runs_compressed_or_not_are_those_of_pycocotools(pixels):
    counts, size = judged(pixels), list(pixels.shape)
    runs = masks.runs(counts).tolist()

    assert rasterize.from_pixels(pixels).counts == counts
    assert rasterize.from_segmentation({"size": size, "counts": runs}, *size).counts == counts
    assert rasterize.from_segmentation({"size": size, "counts": counts.decode()}, *size).counts == counts


@settings(max_examples=60, deadline=None)
@given(PIXELS)
def test_area_and_box(pixels):
    mask = rasterize.from_pixels(pixels)

    assert mask.area() == pixels.sum()
    if pixels.any():
        down, across = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
        size = (across[-1] + 1 - across[0], down[-1] + 1 - down[0])
        assert mask.box() == (across[0], down[0], *size)


@pytest.mark.parametrize("polygons", [[], [[]], [[1, 1, 5, 5]], [[1, 1], [2, 2, 9, 9]]])
def test_fewer_than_three_corners_have_no_area(polygons):
    assert rasterize.from_segmentation(polygons, 10, 10) is None


def test_parts_without_area_are_left_out():
    square = [2, 2, 8, 2, 8, 8, 2, 8]

    assert rasterize.from_segmentation([[1, 1, 5, 5], square], 10, 10) == rasterize.from_segmentation([square], 10, 10)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ("2 2", "the counts of its segmentation have a character ' '"),
        ("2P", "the counts of its segmentation end in the middle of a number"),
        ("o" * 9 + "0", "the counts of its segmentation have a number that is too large"),
        ("23", "do not fill its 2 × 2 pixels"),
        ([2, 3], "do not fill its 2 × 2 pixels"),
        ([6, -2], "do not fill its 2 × 2 pixels"),
        ([2**64, 4 - 2**64], "do not fill its 2 × 2 pixels"),
        ([2.0, 2.0], "are neither a list of numbers nor compressed"),
    ],
)
def test_runs_that_do_not_fill_the_mask_are_refused(counts, problem):
    with pytest.raises(ValueError, match=problem):
        rasterize.from_segmentation({"size": [2, 2], "counts": counts}, 2, 2)
