from __future__ import annotations

import numpy as np
import pytest

from tagfill.scenes.compose import Owners, Place

SQUARE = np.ones((4, 4), dtype=bool)


def at(row, column, *, rows=4, columns=4):
    """The place of a whole 4×4 stamp, or of its last rows and columns where it sticks out."""
    return Place((slice(row, row + rows), slice(column, column + columns)), (slice(4 - rows, 4), slice(4 - columns, 4)))


@pytest.fixture
def owners():
    """An empty picture of 10×10 with a square in its corner."""
    owners = Owners(np.full((10, 10), -1, dtype=np.int16))
    owners.admit(at(0, 0), SQUARE, share=1.0)
    return owners


def test_an_object_owns_its_pixels(owners):
    assert np.argwhere(owners.pixels == 0).max(axis=0).tolist() == [3, 3]


def test_a_new_object_may_cover_half_of_another(owners):
    assert owners.admit(at(0, 2), SQUARE, share=0.5)


def test_a_new_object_may_not_cover_more_than_half_of_another(owners):
    assert not owners.admit(at(0, 1), SQUARE, share=0.5)


def test_a_shy_object_covers_nothing(owners):
    assert not owners.admit(at(3, 3), SQUARE, share=1.0)


def test_what_several_objects_hide_adds_up(owners):
    owners.admit(at(0, 2), SQUARE, share=0.5)

    assert not owners.admit(at(3, 0), SQUARE, share=0.5)


def test_a_refused_object_leaves_no_trace(owners):
    before = owners.pixels.copy()

    owners.admit(at(0, 1), SQUARE, share=0.5)

    assert np.array_equal(owners.pixels, before)
    assert (owners.totals, owners.visible) == ([16], [16])


def test_an_object_that_is_mostly_outside_is_refused(owners):
    assert not owners.admit(at(0, 6, rows=1), SQUARE, share=0.5)


def test_covered_pixels_change_owner(owners):
    owners.admit(at(0, 2), SQUARE, share=0.5)

    assert owners.visible == [8, 16]
