from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reference.windows import window
from tagfill.images import Geometry

modest = settings(max_examples=60, deadline=None)
shares = st.floats(0, 1, width=32)


@st.composite
def geometries(draw, least: float = 1 / 64) -> Geometry:
    count = draw(st.integers(1, 4))
    boxes = []
    for _ in range(count):
        left, top = draw(st.floats(0, 1 - least)), draw(st.floats(0, 1 - least))
        right, bottom = draw(st.floats(left + least, 1)), draw(st.floats(top + least, 1))
        boxes.append((left, top, right, bottom))
    flips = draw(arrays(np.bool_, (2, count)))
    return Geometry(np.array(boxes, np.float32), flips[0], flips[1], np.ones(count, bool))


@modest
@given(geometry=geometries(), point=st.tuples(shares, shares))
def test_points_come_back_from_the_view(geometry, point):
    points = np.tile(np.array(point), (len(geometry), 3, 1))
    np.testing.assert_allclose(geometry.to_image(geometry.to_view(points)), points, atol=1e-9)


@modest
@given(geometry=geometries(), point=st.tuples(shares, shares))
def test_points_come_back_from_the_image(geometry, point):
    points = np.tile(np.array(point), (len(geometry), 1))
    np.testing.assert_allclose(geometry.to_view(geometry.to_image(points)), points, atol=1e-6)


@modest
@given(geometry=geometries())
def test_corners_of_the_crop_are_corners_of_the_view(geometry):
    for at in range(len(geometry)):
        left, top, right, bottom = geometry.box[at].astype(float)
        one = geometry.take(np.array([at]))
        seen = one.to_view(np.array([[[left, top], [right, bottom]]]))[0]
        x, y = (1.0 if flip else 0.0 for flip in (one.flip_x[0], one.flip_y[0]))
        np.testing.assert_allclose(seen, [[x, y], [1 - x, 1 - y]], atol=1e-9)


def test_a_worked_example():
    """The right half of the image, mirrored: a point at three quarters of the width stays in the middle."""
    geometry = Geometry(np.array([[0.5, 0, 1, 1]], np.float32), *(np.array([flag]) for flag in (True, False, True)))
    assert geometry.to_view(np.array([[0.75, 0.25]])).tolist() == [[0.5, 0.25]]
    assert geometry.to_view(np.array([[0.5, 0.25]])).tolist() == [[1.0, 0.25]]


def test_points_outside_the_crop_are_outside_the_view():
    geometry = Geometry(np.array([[0.5, 0.5, 1, 1]], np.float32), *(np.array([flag]) for flag in (False, False, True)))
    assert (geometry.to_view(np.array([[0.25, 0.25]])) < 0).all()


@modest
@given(geometry=geometries(least=1 / 1024), size=st.integers(1, 30))
def test_windows_equal_the_rule(geometry, size):
    for (left, top, right, bottom), found in zip(geometry.box.tolist(), geometry.windows(size).tolist(), strict=True):
        (x0, x1), (y0, y1) = window(left, right, size), window(top, bottom, size)
        assert found == [x0, y0, x1, y1]


@modest
@given(geometry=geometries(least=1 / 1024), size=st.integers(1, 30))
def test_windows_have_a_cell_and_lie_inside(geometry, size):
    windows = geometry.windows(size)
    assert (windows >= 0).all()
    assert (windows <= size).all()
    assert (windows[:, 2:] > windows[:, :2]).all()


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(0, 1, (0, 4)), (0.375, 0.625, (2, 3)), (0.125, 0.5, (1, 2)), (0.9, 0.95, (3, 4)), (0.4, 0.45, (2, 3))],
    ids=["whole", "halves go up", "half of a cell goes up", "last cell", "one cell at least"],
)
def test_windows_of_four_cells(start, stop, expected):
    box = np.array([[start, start, stop, stop]], np.float32)
    geometry = Geometry(box, *(np.array([flag]) for flag in (False, False, True)))
    assert geometry.windows(4).tolist() == [[expected[0], expected[0], expected[1], expected[1]]]


def test_flips_do_not_move_windows():
    box = np.array([[0.25, 0, 0.75, 0.5]] * 2, np.float32)
    geometry = Geometry(box, np.array([False, True]), np.array([False, True]), np.array([True, True]))
    windows = geometry.windows(8)
    assert windows[0].tolist() == windows[1].tolist() == [2, 0, 6, 4]


@modest
@given(one=geometries(), other=geometries())
def test_joined_geometries_can_be_taken_apart(one, other):
    joined = Geometry.join([one, other])
    again = joined.take(np.arange(len(one), len(joined)))
    for name in ("box", "flip_x", "flip_y", "exact"):
        np.testing.assert_array_equal(getattr(again, name), getattr(other, name))


def test_whole_images_have_no_crop_and_no_flip():
    points = np.array([[0.2, 0.3], [0.9, 0.1]])
    np.testing.assert_array_equal(Geometry.whole(2).to_view(points), points)
