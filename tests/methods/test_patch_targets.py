from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.patch_targets import covered_cells, painted_box
from tagfill.contract import Marks
from tagfill.dataset import masks
from tagfill.errors import TagfillError
from tagfill.images.geometry import Geometry
from tagfill.methods.patchml import PatchTargets, patch_targets

RASTER = 24
PRESENT = torch.ones(1, 1, dtype=torch.int8)


def marks_of(*boxes: tuple[float, float, float, float], masks=None, labels=None, images=None) -> Marks:
    """Centre and size of each mark."""
    size = len(boxes)
    return Marks(
        np.zeros(size, np.int64) if images is None else np.array(images),
        np.zeros(size, np.int64) if labels is None else np.array(labels),
        np.array(boxes, dtype=np.float64).reshape(size, 4),
        (None,) * size if masks is None else masks,
    )


def view(left: float = 0, top: float = 0, right: float = 1, bottom: float = 1, flip_x=False, flip_y=False) -> Geometry:
    box = np.array([[left, top, right, bottom]], np.float32)
    return Geometry(box, np.array([flip_x]), np.array([flip_y]), np.array([True]))


def positive_cells(targets: PatchTargets) -> set[tuple[int, int]]:
    return {(int(row), int(column)) for _, row, column in torch.nonzero(targets.cells == 1)}


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, int, int, int], bool, bool]:
    width, height = draw(st.sampled_from([12, 24])), draw(st.sampled_from([12, 24]))
    left, top = draw(st.integers(0, RASTER - width)), draw(st.integers(0, RASTER - height))
    return (left, top, left + width, top + height), draw(st.booleans()), draw(st.booleans())


grids = st.sampled_from([(2, 2), (3, 4), (4, 2), (1, 6)])
covers = st.sampled_from([Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1)])
spans = st.tuples(st.integers(0, RASTER - 1), st.integers(1, RASTER)).map(lambda s: (s[0], min(s[0] + s[1], RASTER)))


def geometry_of(shown) -> Geometry:
    crop, flip_x, flip_y = shown
    return view(*(edge / RASTER for edge in crop), flip_x=flip_x, flip_y=flip_y)


@settings(max_examples=80, deadline=None)
@given(views(), grids, covers, spans, spans)
def test_boxes_equal_painting(shown, grid, min_cover, across, down):
    (left, right), (top, bottom) = across, down
    box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
    marks = marks_of(tuple(np.float32(value / RASTER) for value in box))
    found = patch_targets(marks, geometry_of(shown), PRESENT, grid, min_cover=float(min_cover))
    expected = covered_cells(painted_box(left, top, right, bottom, RASTER), *shown, grid, min_cover)
    assert positive_cells(found) == expected


@settings(max_examples=60, deadline=None)
@given(views(), grids, covers, st.integers(0, 2**32), st.floats(0.02, 0.9))
def test_masks_equal_painting(shown, grid, min_cover, seed, density):
    mask = np.random.default_rng(seed).random((RASTER, RASTER)) < density
    marks = marks_of((0.5, 0.5, 1, 1), masks=((masks.encode(mask), RASTER, RASTER),))
    found = patch_targets(marks, geometry_of(shown), PRESENT, grid, min_cover=float(min_cover))
    assert positive_cells(found) == covered_cells(mask.tolist(), *shown, grid, min_cover)


@settings(max_examples=60, deadline=None)
@given(views(), grids, st.integers(0, RASTER - 1), st.integers(0, RASTER - 1))
def test_points_equal_painting_their_pixel(shown, grid, column, row):
    marks = marks_of(((column + 0.5) / RASTER, (row + 0.5) / RASTER, 0, 0))
    found = patch_targets(marks, geometry_of(shown), PRESENT, grid)
    painted = painted_box(column, row, column + 1, row + 1, RASTER)
    assert positive_cells(found) == covered_cells(painted, *shown, grid, Fraction(0))


def test_a_point_on_the_far_edge_takes_the_last_cell():
    assert positive_cells(patch_targets(marks_of((1.0, 1.0, 0, 0)), view(), PRESENT, (3, 5))) == {(2, 4)}


def test_several_places_of_a_class_are_joined_and_the_other_cells_unknown():
    marks = marks_of((0.1, 0.1, 0, 0), (0.9, 0.1, 0.1, 0.1), (0.1, 0.9, 0, 0), labels=[0, 0, 1])
    targets = patch_targets(marks, view(), torch.tensor([[1, 1]]), (2, 2))
    assert targets.dense(1, 2).tolist() == [[[[1, 1], [-1, -1]], [[-1, -1], [1, -1]]]]


def test_an_absent_class_is_absent_from_all_cells_and_an_unknown_one_is_not_listed():
    targets = patch_targets(marks_of(), view(), torch.tensor([[0, -1, 1]]), (2, 3))
    assert targets.image.tolist() == [0]
    assert targets.label.tolist() == [0]
    assert targets.cells.tolist() == [[[0, 0, 0], [0, 0, 0]]]


def test_a_place_outside_the_crop_marks_nothing():
    marks = marks_of((0.9, 0.9, 0, 0), (0.8, 0.8, 0.2, 0.2))
    assert len(patch_targets(marks, view(0, 0, 0.5, 0.5), PRESENT, (2, 2)).cells) == 0


def test_a_place_of_a_class_that_is_not_present_does_not_count():
    marks = marks_of((0.5, 0.5, 0, 0), (0.5, 0.5, 0, 0), labels=[0, 1])
    targets = patch_targets(marks, view(), torch.tensor([[-1, 0]]), (1, 1))
    assert targets.dense(1, 2).flatten().tolist() == [-1, 0]


def test_each_image_has_its_own_view():
    geometry = Geometry.join([view(), view(flip_x=True), view(0.5, 0.5, 1, 1)])
    marks = marks_of(*[(0.1, 0.1, 0, 0)] * 3, images=[0, 1, 2])
    cells = patch_targets(marks, geometry, torch.ones(3, 1), (2, 2)).dense(3, 1)[:, 0]
    assert [torch.nonzero(cell == 1).tolist() for cell in cells] == [[[0, 0]], [[0, 1]], []]


def test_distorted_views_are_refused():
    geometry = view()
    geometry.exact[:] = False
    with pytest.raises(TagfillError, match="exact crops and flips; remove strong augmentation"):
        patch_targets(marks_of(), geometry, PRESENT, (2, 2))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32), st.floats(0, 1))
def test_strips_of_a_mask_paint_it_again(height, width, seed, density):
    mask = np.random.default_rng(seed).random((height, width)) < density
    again = np.zeros_like(mask)
    for column, top, bottom in masks.strips(masks.encode(mask), height):
        assert not again[top:bottom, column].any()
        again[top:bottom, column] = True
    assert np.array_equal(again, mask)
