from __future__ import annotations

import numpy as np
import pytest
import torch

from methods.cases import GRID, LABELS, batch_of, maps_of, task_of, visit
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.images.geometry import Geometry
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
        TagfillError, match="'scl' needs views that are exact crops and flips; remove strong augmentation"
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


@pytest.mark.parametrize("term", ["cl", "scl"])
@pytest.mark.parametrize("distance", ["l1", "l2", "jsd"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean", "known"])
def test_distance_and_reduction_are_those_asked_for(term, distance, reduction):
    options = {"weight": 1.0, "distance": distance, "reduction": reduction}
    task, method = started(f"an+{term}", {term: options})
    prediction = maps_of(EVERYBODY)
    value = visit(method, task, EVERYBODY, prediction)[term]
    target = one_hot() if term == "cl" else one_hot()[:, :, None, None].expand(-1, -1, *GRID)
    seen = prediction.logits if term == "cl" else prediction.maps
    labels = batch_of(EVERYBODY).labels
    expected = consistency(seen, labels, target, distance=distance, reduction=reduction)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance": "cosine"}, "Option distance='cosine' of method 'scl': Input should be 'l1', 'l2' or 'jsd'"),
        (
            {"reduction": "none"},
            "Option reduction='none' of method 'scl': Input should be 'mean', 'sum'",
        ),
        ({"rounding": "up"}, "Option rounding='up' of method 'scl': Input should be 'nearest' or 'stochastic'"),
    ],
)
def test_words_that_an_option_does_not_know_are_refused(options, message):
    with pytest.raises(TagfillError, match=message):
        create("an+scl", {"scl": options})


def test_a_few_classes_are_settled_by_the_scores_of_the_first_epoch():
    """Until then there is no term; then those with the highest scores and the annotated one, for good."""
    task, method = started("an+scl", {"scl": {"weight": 1.0, "classes_per_image": 2}})
    first, second = maps_of(EVERYBODY), maps_of(EVERYBODY, seed=1)
    assert visit(method, task, EVERYBODY, first)["scl"] == 0
    scores = task.memory.scores(momentum=0.8).values.float()
    method.begin_epoch(2)
    kept = task.memory.heatmaps(momentum=0.8, size=4, classes_per_image=2).kept(torch.arange(6))
    expected = (scores + 2 * one_hot()).topk(2).indices.sort(1).values
    assert torch.equal(kept, expected)
    value = visit(method, task, EVERYBODY, second)["scl"]
    target = one_hot().gather(1, kept)[:, :, None, None].expand(-1, -1, *GRID)
    maps = second.maps.gather(1, kept[:, :, None, None].expand(-1, -1, *GRID))
    assert float(value) == pytest.approx(
        float(consistency(maps, batch_of(EVERYBODY).labels.gather(1, kept), target)), rel=1e-5
    )
    method.begin_epoch(3)
    assert torch.equal(task.memory.heatmaps(momentum=0.8, size=4, classes_per_image=2).kept(torch.arange(6)), kept)


def test_a_few_classes_are_settled_at_once_after_a_warm_up():
    task, warmup = started("en", {"en": {"warmup": True}})
    visit(warmup, task, EVERYBODY, maps_of(EVERYBODY))
    _, method = started("en+scl", {"scl": {"classes_per_image": 1}}, memory=task.memory)
    assert float(visit(method, task, EVERYBODY, maps_of(EVERYBODY))["scl"].detach()) > 0


def test_heatmaps_of_kept_classes_equal_those_of_all():
    few, method = started("an+scl", {"scl": {"classes_per_image": 2}})
    visit(method, few, EVERYBODY, maps_of(EVERYBODY))
    method.begin_epoch(2)
    every, dense = started("an+scl")
    for seed in (1, 2):
        visit(method, few, EVERYBODY, maps_of(EVERYBODY, seed=seed))
        visit(dense, every, EVERYBODY, maps_of(EVERYBODY, seed=seed))
    index, whole = torch.arange(6), Geometry.whole(6)
    sparse = few.memory.heatmaps(momentum=0.8, size=4, classes_per_image=2)
    kept = sparse.kept(index)[:, :, None, None].expand(-1, -1, 4, 4)
    expected = every.memory.heatmaps(momentum=0.8, size=4).read(index, whole, (4, 4)).gather(1, kept)
    assert torch.equal(sparse.read(index, whole, (4, 4)), expected)


def test_the_noise_of_rounding_knows_its_epoch_after_a_resume():
    prediction, values = maps_of(EVERYBODY), []
    task, method = started("an+scl", {"scl": {"rounding": "stochastic"}})
    method.begin_epoch(7)
    state = method.state_dict()
    visit(method, task, EVERYBODY, prediction)
    for restored in (state, {}):
        other_task, other = started("an+scl", {"scl": {"rounding": "stochastic"}})
        if restored:
            other.load_state_dict(restored)
        visit(other, other_task, EVERYBODY, prediction)
        values.append(other_task.memory.state_dict()["heatmaps.values"])
    assert torch.equal(values[0], task.memory.state_dict()["heatmaps.values"])
    assert not torch.equal(values[1], values[0])
