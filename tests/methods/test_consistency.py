from __future__ import annotations

import numpy as np
import pytest
import torch

from methods.cases import GRID, LABELS, batch_of, maps_of, task_of, visit
from tagfill.contract import Geometry, Prediction
from tagfill.errors import TagfillError
from tagfill.losses import consistency
from tagfill.methods import create

EVERYBODY = [0, 1, 2, 3, 4, 5]


def started(name: str, options=None, **changes):
    task, method = task_of(**changes), create(name, options)
    method.setup(task)
    method.begin_epoch(1)
    return task, method


def test_scores_are_written_once_however_many_parts_share_them():
    prediction = maps_of(EVERYBODY)
    after = []
    for name in ("en", "en+cl", "cl+en", "en+scl", "en+cl+scl"):
        task, method = started(name)
        visit(method, task, EVERYBODY, prediction)
        after.append(task.memory.scores(momentum=0.8).values)
    assert all(torch.equal(scores, after[0]) for scores in after)
    assert torch.equal(after[0], (0.8 * one_hot() + (1 - 0.8) * prediction.logits.sigmoid()).half())


def one_hot() -> torch.Tensor:
    return torch.from_numpy(LABELS.dense() == 1).float()


def test_the_target_of_cl_is_from_before_this_visit():
    task, method = started("an+cl", {"cl": {"weight": 1.0}})
    prediction = maps_of(EVERYBODY)
    terms = visit(method, task, EVERYBODY, prediction)
    assert terms["cl"] == consistency(prediction.logits, batch_of(EVERYBODY).labels, one_hot())


def test_the_target_of_scl_is_from_before_this_visit():
    task, method = started("an+scl", {"scl": {"weight": 1.0}})
    prediction = maps_of(EVERYBODY)
    terms = visit(method, task, EVERYBODY, prediction)
    target = one_hot()[:, :, None, None].expand(-1, -1, *GRID)
    assert terms["scl"] == pytest.approx(
        float(consistency(prediction.maps, batch_of(EVERYBODY).labels, target)), abs=1e-6
    )


def test_the_second_visit_is_compared_with_the_first():
    task, method = started("an+scl", {"scl": {"weight": 1.0, "momentum": 0.0}})
    prediction = maps_of(EVERYBODY)
    visit(method, task, EVERYBODY, prediction)
    assert float(visit(method, task, EVERYBODY, prediction)["scl"]) < 0.15
    assert float(visit(method, task, EVERYBODY, maps_of(EVERYBODY, seed=1))["scl"]) > 0.15


def test_a_mirrored_view_is_compared_with_the_mirrored_past():
    """A map that is high on the left, seen again in a mirrored view where it is high on the right."""
    task, method = started("an+scl", {"scl": {"weight": 1.0, "momentum": 0.0}})
    maps = torch.full((1, 3, *GRID), -4.0)
    maps[..., 0] = 4.0
    visit(method, task, [0], Prediction(maps.mean((2, 3)), maps))
    mirrored = batch_of([0])
    mirrored.geometry = Geometry(
        np.array([[0, 0, 1, 1]], np.float32), np.array([True]), np.array([False]), np.array([True])
    )
    seen = maps.flip(-1)
    assert method.loss(mirrored, Prediction(seen.mean((2, 3)), seen))["scl"] < 0.2
    assert method.loss(mirrored, Prediction(maps.mean((2, 3)), maps))["scl"] > 0.5


@pytest.mark.parametrize("term", ["cl", "scl"])
def test_the_weight_scales_the_term(term):
    prediction, values = maps_of(EVERYBODY), []
    for weight in (1.0, 0.25):
        task, method = started(f"an+{term}", {term: {"weight": weight}})
        values.append(float(visit(method, task, EVERYBODY, prediction)[term]))
    assert values[1] == pytest.approx(values[0] / 4)


def test_views_that_are_not_exact_are_refused():
    _, method = started("en+scl")
    with pytest.raises(
        TagfillError, match="'scl' needs views that are exact crops and flips; drop strong augmentation"
    ):
        method.loss(batch_of([0, 1], exact=False), maps_of([0, 1]))


def test_a_head_without_maps_is_refused():
    with pytest.raises(TagfillError, match="'scl' needs class maps; choose a head that makes them, such as cam"):
        started("en+scl", grid=None)


def test_different_momenta_for_shared_scores_are_refused():
    with pytest.raises(TagfillError, match="want different 'scores' memories"):
        started("en+cl", {"cl": {"momentum": 0.9}})


def test_heatmaps_have_twice_the_resolution_of_the_maps():
    task, _ = started("an+scl")
    assert task.memory.sizes()["heatmaps"] == 6 * 3 * 4 * 4
