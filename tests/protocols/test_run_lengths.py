from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycocotools import mask as coco

from tagfill.protocols import run_lengths

MASKS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 40), st.integers(1, 40)))
SMALL_MASKS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9)))


def compressed(mask: np.ndarray) -> bytes:
    return coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"]


@settings(max_examples=100, deadline=None)
@given(MASKS)
def test_runs_paint_the_mask_of_pycocotools(mask):
    runs = run_lengths.runs(compressed(mask))

    painted = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    assert (painted.reshape(mask.shape, order="F") == mask).all()


@settings(max_examples=60, deadline=None)
@given(SMALL_MASKS)
def test_uniform_numbers_reach_each_pixel_once(mask):
    count = int(mask.sum())

    found = [run_lengths.pixel(compressed(mask), mask.shape[0], (index + 0.5) / count) for index in range(count)]

    assert set(found) == {(int(row), int(column)) for row, column in np.argwhere(mask)}
    assert len(set(found)) == count


def test_long_runs_are_read():
    mask = np.zeros((1000, 3000), dtype=bool)
    mask[:, 1500:] = True

    assert run_lengths.runs(compressed(mask)).tolist() == [1_500_000, 1_500_000]


def test_an_empty_mask_has_no_pixel():
    assert run_lengths.pixel(compressed(np.zeros((3, 3), dtype=bool)), 3, 0.5) is None
    assert run_lengths.pixel(b"", 3, 0.5) is None
