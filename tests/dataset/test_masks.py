from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycocotools import mask as coco

from reference.rle import decode
from tagfill.dataset import masks

MASKS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 40), st.integers(1, 40)))
RUNS = st.lists(st.integers(0, 2**29 - 1), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(MASKS)
def test_the_bytes_are_those_of_pycocotools(mask):
    assert masks.encode(mask) == coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"]


@settings(max_examples=60, deadline=None)
@given(MASKS)
def test_decode_inverts_encode(mask):
    rle = masks.encode(mask)

    assert np.array_equal(masks.decode(rle, *mask.shape), mask)
    assert decode(rle, *mask.shape) == mask.astype(int).tolist()


@settings(max_examples=60, deadline=None)
@given(MASKS)
def test_area_and_bounds_are_those_of_pycocotools(mask):
    rle = masks.encode(mask)
    encoded = {"size": list(mask.shape), "counts": rle}

    assert masks.area(rle) == coco.area(encoded) == mask.sum()
    assert masks.bounds(rle, mask.shape[0]) == tuple(coco.toBbox(encoded))


@settings(max_examples=100, deadline=None)
@given(RUNS)
def test_runs_inverts_compress(lengths):
    assert masks.runs(masks.compress(np.array(lengths))).tolist() == lengths


def test_a_mask_that_begins_with_a_one_begins_with_an_empty_run():
    mask = np.array([[True, False], [True, True]])

    assert masks.runs_of(mask).tolist() == [0, 2, 1, 1]


def test_empty_runs_do_not_change_the_bounds():
    assert masks.bounds(masks.compress(np.array([0, 0, 5, 1, 3])), 3) == (1, 2, 1, 1)


@pytest.mark.parametrize(
    ("rle", "problem"),
    [
        (b"\x00", r"have a character '\\x00'"),
        (b"\xff", "have a character 'ÿ'"),
        (b"2P", "end in the middle of a number"),
        (b"O", "have a negative run"),
        (b"o" * 40 + b"0", "have a number that is too large"),
    ],
)
def test_invalid_run_lengths_are_refused(rle, problem):
    with pytest.raises(ValueError, match=problem):
        masks.runs(rle)


def test_runs_of_another_size_are_refused():
    with pytest.raises(ValueError, match="do not fill 2 × 3 pixels"):
        masks.decode(b"22", 2, 3)
