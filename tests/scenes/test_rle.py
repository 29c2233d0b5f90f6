from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycocotools import mask as coco

from reference.rle import decode
from tagfill.scenes import rle

MASKS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 40), st.integers(1, 40)))


def test_a_mask_that_begins_with_a_one_begins_with_an_empty_run():
    mask = np.array([[True, False], [True, True]])

    assert rle.run_lengths(mask) == [0, 2, 1, 1]


def test_long_runs_take_several_characters():
    mask = np.zeros((100, 100), dtype=bool)
    mask[:, 50:] = True

    assert rle.encode(mask) == coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"]


@settings(max_examples=60, deadline=None)
@given(MASKS)
def test_the_bytes_are_those_of_pycocotools(mask):
    expected = coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"]

    assert rle.encode(mask) == expected


@settings(max_examples=60, deadline=None)
@given(MASKS)
def test_the_reference_decoder_gives_the_mask_back(mask):
    assert decode(rle.encode(mask), *mask.shape) == mask.astype(int).tolist()
