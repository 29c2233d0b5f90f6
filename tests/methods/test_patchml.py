from __future__ import annotations

import numpy as np
import pytest
import torch

from methods.cases import GRID, batch_of, maps_of, task_of
from reference.patch import focal_entry
from reference.patch import patch as reference
from tagfill.contract import Batch, Marks, Prediction
from tagfill.errors import TagfillError
from tagfill.methods import create

EVERYBODY = [0, 1, 2, 3, 4, 5]
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


def cells_of_everybody() -> torch.Tensor:
    cells = torch.full((6, 3, *GRID), -1)
    cells[0, 0, 0, 1] = 1
    cells[0, 2] = 0
    cells[2, 1, 1] = 1
    return cells


def terms(prediction: Prediction | None = None, **options) -> dict[str, float]:
    method = create("patchml", {"patchml": options})
    method.setup(task_of())
    found = method.loss(marked(EVERYBODY), prediction or maps_of(EVERYBODY))
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("cells", ["mean", "sum"])
@pytest.mark.parametrize("scope", ["class", "batch"])
def test_the_patch_level_equals_the_formula(selective, cells, scope):
    prediction = maps_of(EVERYBODY)
    mode = "selective" if selective else "ignore"
    options = {"patch_unknown": mode, "cells": cells, "patch_scope": scope, "k_patch": 1, "w_patch": 2.0}
    expected = reference(
        prediction.maps.flatten(2).tolist(),
        cells_of_everybody().flatten(2).tolist(),
        (0.0, 1.0, 4.0),
        ALIKE,
        selective,
        1,
        scope,
        cells == "mean",
    )
    assert terms(prediction, **options)["patch"] == pytest.approx(2 * sum(map(sum, expected)) / 6, rel=1e-5)


def test_the_image_level_equals_the_formula():
    prediction, labels = maps_of(EVERYBODY), batch_of(EVERYBODY).labels
    entries = zip(prediction.logits.flatten().tolist(), labels.flatten().tolist(), strict=True)
    expected = sum(focal_entry(logit, label, False, (0.0, 1.0, 4.0), ALIKE) for logit, label in entries) / 6
    assert terms(prediction, w_image=0.5)["image"] == pytest.approx(0.5 * expected, rel=1e-5)


def test_csl_i_leaves_out_the_likeliest_unknowns_of_the_batch():
    """Two an image and six images: the twelve likeliest of the eleven unknowns are all of them; with one, six."""
    prediction, labels = maps_of(EVERYBODY), batch_of(EVERYBODY).labels
    unknown = sorted((g for g, z in zip(prediction.logits.flatten(), labels.flatten(), strict=True) if z == -1))
    assert len(unknown) == 11
    ignored = terms(prediction, **PLAIN)["image"]
    assert terms(prediction, image_unknown="selective", k_image=2, **PLAIN)["image"] == pytest.approx(ignored)
    rest = sum(focal_entry(float(g), -1, True, NO_FOCUS, ALIKE) for g in unknown[:5]) / 6
    selected = terms(prediction, image_unknown="selective", k_image=1, **PLAIN)["image"]
    assert selected == pytest.approx(ignored + rest, rel=1e-5)


def test_a_mirrored_crop_moves_the_marks():
    batch, maps = marked([0]), torch.zeros(1, 3, *GRID, requires_grad=True)
    batch.geometry.flip_x[:] = True
    create("patchml", {"patchml": {"w_image": 0.0}}).loss(batch, Prediction(maps.mean((2, 3)), maps))[
        "patch"
    ].backward()
    assert torch.nonzero(maps.grad[0, 0]).tolist() == [[0, 0]]
    assert not maps.grad[0, 1].any()
    assert (maps.grad[0, 2] > 0).all()


def test_levels_of_weight_zero_are_left_out():
    assert set(terms(w_patch=0.0)) == {"image"}
    assert set(terms(w_image=0.0)) == {"patch"}


def test_tags_alone_still_teach_absent_cells():
    batch = batch_of(EVERYBODY)
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
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(TagfillError, match=message):
        create("patchml", {"patchml": options})
