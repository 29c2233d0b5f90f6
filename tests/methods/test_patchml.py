from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.cases import GRID, batch_of, maps_of, task_of, visit
from reference.patch import focal_entry
from reference.patch import patch as reference
from reference.patch_targets import covered_cells, painted_box
from tagfill.contract import Batch, Marks, Prediction
from tagfill.dataset import masks
from tagfill.errors import TagfillError
from tagfill.experiments import recipes
from tagfill.images.geometry import Geometry
from tagfill.methods import create
from tagfill.methods.patchml import PatchTargets, patch_targets

ALL_IMAGES = [0, 1, 2, 3, 4, 5]
PLAIN = {"image_gammas": (0, 0, 0), "patch_gammas": (0, 0, 0)}
NO_FOCUS, ALIKE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


def marked(index: list[int]) -> Batch:
    """Image 0 has a point for its class 0, image 2 a box over the lower half for class 1, the others tags alone."""
    batch = batch_of(index)
    places = {0: (0, [0.9, 0.1, 0, 0]), 2: (1, [0.5, 0.75, 1.0, 0.5])}
    rows = [row for row, image in enumerate(index) if image in places]
    found = [places[index[row]] for row in rows]
    batch.marks = Marks(
        np.array(rows, np.int64),
        np.array([label for label, _ in found], np.int64),
        np.array([box for _, box in found], np.float64).reshape(-1, 4),
        (None,) * len(rows),
    )
    return batch


def cells_of_all_images() -> torch.Tensor:
    cells = torch.full((6, 3, *GRID), -1)
    cells[0, 0, 0, 1] = 1
    cells[0, 2] = 0
    cells[2, 1, 1] = 1
    return cells


def terms(prediction: Prediction | None = None, **options) -> dict[str, float]:
    method = create("patchml", {"patchml": options})
    method.setup(task_of())
    found = method.loss(marked(ALL_IMAGES), prediction or maps_of(ALL_IMAGES))
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("cells", ["mean", "sum"])
@pytest.mark.parametrize("scope", ["class", "batch"])
def test_the_patch_level_equals_the_formula(selective, cells, scope):
    prediction = maps_of(ALL_IMAGES)
    mode = "selective" if selective else "ignore"
    options = {"patch_unknown": mode, "cells": cells, "patch_scope": scope, "k_patch": 1, "w_patch": 2.0}
    expected = reference(
        prediction.maps.flatten(2).tolist(),
        cells_of_all_images().flatten(2).tolist(),
        (0.0, 1.0, 4.0),
        ALIKE,
        selective,
        1,
        scope,
        cells == "mean",
    )
    assert terms(prediction, **options)["patch"] == pytest.approx(2 * sum(map(sum, expected)) / 6, rel=1e-5)


def test_the_image_level_equals_the_formula():
    prediction, labels = maps_of(ALL_IMAGES), batch_of(ALL_IMAGES).labels
    entries = zip(prediction.logits.flatten().tolist(), labels.flatten().tolist(), strict=True)
    expected = sum(focal_entry(logit, label, False, (0.0, 1.0, 4.0), ALIKE) for logit, label in entries) / 6
    assert terms(prediction, w_image=0.5)["image"] == pytest.approx(0.5 * expected, rel=1e-5)


def test_csl_i_leaves_out_the_likeliest_unknowns_of_the_batch():
    """Two per image and six images: the twelve likeliest of the eleven unknowns are all of them; with one, six."""
    prediction, labels = maps_of(ALL_IMAGES), batch_of(ALL_IMAGES).labels
    unknown = sorted((g for g, z in zip(prediction.logits.flatten(), labels.flatten(), strict=True) if z == -1))
    assert len(unknown) == 11
    ignored = terms(prediction, **PLAIN)["image"]
    assert terms(prediction, image_unknown="selective", k_image=2, **PLAIN)["image"] == pytest.approx(ignored)
    rest = sum(focal_entry(float(g), -1, True, NO_FOCUS, ALIKE) for g in unknown[:5]) / 6
    selected = terms(prediction, image_unknown="selective", k_image=1, **PLAIN)["image"]
    assert selected == pytest.approx(ignored + rest, rel=1e-5)


@pytest.mark.parametrize("k", [0, 1])
def test_csl_i_sums_over_labeled_images(k):
    """Eq. 1, 3 and 5: an image without a label has no gradient, and takes no place among the likeliest unknowns."""
    batch = marked(ALL_IMAGES)
    batch.labels[5] = -1
    maps = torch.randn(6, 3, *GRID, generator=torch.Generator().manual_seed(2))
    maps[5] += 9  # likelier than all others
    maps.requires_grad_()
    method = create("patchml", {"patchml": {"image_unknown": "selective", "k_image": k, "w_patch": 0.0}})
    method.loss(batch, Prediction(maps.mean((2, 3)), maps))["image"].backward()
    touched = maps.grad.flatten(2).any(2)
    assert not touched[5].any()
    assert int(touched[:5].sum()) == 15 - 5 * k


@pytest.mark.parametrize("k", [0, 1])
def test_csl_i_leaves_out_the_unknowns_of_frequent_classes(k):
    """Class c, of which positives and negatives are known, is frequent; what its prior ignores still takes places."""
    task = task_of()
    helper = create("p-asl")
    helper.setup(task)
    visit(helper, task, ALL_IMAGES, Prediction(torch.full((6, 3), 0.1)))  # a prior of 0.525 for each class
    prediction, labels = maps_of(ALL_IMAGES), batch_of(ALL_IMAGES).labels
    unknown = [(float(prediction.logits[n, c]), c) for n, c in torch.nonzero(labels == -1).tolist()]
    likely = sorted(unknown, reverse=True)[: 6 * k]
    ignored = terms(prediction, **PLAIN)["image"]
    for threshold, frequent in ((0.5, {2}), (0.53, set())):
        chosen = {"image_unknown": "selective", "k_image": k, "prior": "stage", "prior_threshold": threshold, **PLAIN}
        method = create("patchml", {"patchml": {**chosen, "w_patch": 0.0}})
        method.setup(task)
        left = [logit for logit, label in unknown if label not in frequent and (logit, label) not in likely]
        rest = sum(focal_entry(logit, -1, True, NO_FOCUS, ALIKE) for logit in left) / 6
        found = float(method.loss(marked(ALL_IMAGES), prediction)["image"])
        assert found == pytest.approx(ignored + rest, rel=1e-5), (threshold, len(left))


def test_csl_i_asks_for_the_stage_that_estimates_the_prior():
    method = create("patchml", {"patchml": {"image_unknown": "selective", "prior": "stage"}})
    assert {"memory", "prior"} <= method.needs
    with pytest.raises(TagfillError, match="has no prior: train a stage with p-asl before it and start with memory"):
        method.setup(task_of())


def test_the_recipes_csl_p_adds_a_term_and_leaves_that_of_the_point():
    """Of 14×14 cells one is marked and the ten likeliest are ignored: 186 count, and the weight of the point is 186."""
    options = recipes.settings("patchml-coco14-unlabeled", "sp-1+csl-p")["options"]["patchml"]
    plain = recipes.settings("patchml-coco14-unlabeled", "sp-1")["options"]["patchml"]
    gradients = []
    for chosen in (plain, options):
        maps = torch.randn(6, 3, 14, 14, generator=torch.Generator().manual_seed(2)).requires_grad_()
        method = create("patchml", {"patchml": {**chosen, "w_image": 0.0}})
        method.setup(task_of(grid=(14, 14)))
        method.loss(marked([0] * 6), Prediction(maps.mean((2, 3)), maps))["patch"].backward()
        gradients.append(maps.grad[:, 0, 1, 12])
    assert gradients[0].all()
    torch.testing.assert_close(*gradients)


def test_a_mirrored_crop_moves_the_marks():
    batch, maps = marked([0]), torch.zeros(1, 3, *GRID, requires_grad=True)
    batch.geometry.flip_x[:] = True
    create("patchml", {"patchml": {"w_image": 0.0}}).loss(batch, Prediction(maps.mean((2, 3)), maps))[
        "patch"
    ].backward()
    assert torch.nonzero(maps.grad[0, 0]).tolist() == [[0, 0]]
    assert not maps.grad[0, 1].any()
    assert (maps.grad[0, 2] > 0).all()


def test_levels_with_weight_zero_are_not_computed():
    assert set(terms(w_patch=0.0)) == {"image"}
    assert set(terms(w_image=0.0)) == {"patch"}


def test_tags_alone_still_teach_absent_cells():
    batch = batch_of(ALL_IMAGES)
    maps = torch.zeros(6, 3, *GRID, requires_grad=True)
    create("patchml", {"patchml": {"w_image": 0.0}}).loss(batch, Prediction(maps.mean((2, 3)), maps))[
        "patch"
    ].backward()
    assert maps.grad[0, 2].all()
    assert int((maps.grad != 0).sum()) == GRID[0] * GRID[1]


def test_distorted_views_are_refused():
    batch = marked([0])
    batch.geometry.exact[:] = False
    with pytest.raises(TagfillError, match="exact crops and flips"):
        create("patchml").loss(batch, maps_of([0]))


def test_a_head_without_maps_is_refused():
    with pytest.raises(TagfillError, match="'patchml' needs class maps"):
        create("patchml").setup(task_of(grid=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"image_unknown": "negative"},
            "image_unknown='negative' of method 'patchml': Input should be 'ignore' or",
        ),
        ({"patch_gammas": (1, 2)}, "patch_gammas is .*; give three numbers"),
        ({"min_cover": 2}, "min_cover is 2.0; give a share"),
        ({"patch_scope": "image"}, "patch_scope='image' of method"),
        ({"cells": "max"}, "cells='max' of method"),
        ({"prior": "stage"}, "set options.patchml.image_unknown to selective too"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(TagfillError, match=message):
        create("patchml", {"patchml": options})


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


def test_targets_distorted_views_are_refused():
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
