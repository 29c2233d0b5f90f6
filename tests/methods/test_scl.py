from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from methods.cases import DENSE, GRID, LABELS, batch_of, maps_of, task_of, visit
from reference.ranking import top_per_class
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.losses import assume_negative, consistency, expected_negative
from tagfill.memory import Memory
from tagfill.methods import create

ALL_IMAGES = [0, 1, 2, 3, 4, 5]
LOGITS = torch.tensor(
    [
        [3.0, -1.0, 2.0],
        [2.0, -2.0, -3.0],
        [-1.0, 1.0, 1.0],
        [4.0, -4.0, -2.0],
        [-3.0, 2.5, 2.0],
        [-2.0, 0.5, -9.0],
    ]
)


def started(task, name="en", **options):
    method = create(name, {name: options})
    method.setup(task)
    method.begin_epoch(1)
    return method


@pytest.mark.parametrize("images", [ALL_IMAGES, [4, 1]])
def test_the_first_epoch_is_assume_negative(images):
    """Explicit negatives included, and whatever was seen before in the same epoch."""
    task = task_of()
    method = started(task)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    loss = method.loss(batch_of(images), Prediction(LOGITS[images]))["en"]
    assert loss == assume_negative(LOGITS[images], batch_of(images).labels)


def left_out(method) -> list[tuple[int, int]]:
    """The entries that cost nothing: unknown ones that are not taken for negatives."""
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(method.loss(batch_of(ALL_IMAGES), Prediction(logits))["en"], logits)
    return [tuple(entry) for entry in (gradient == 0).nonzero().tolist()]


def test_later_epochs_leave_out_the_expected_positives():
    """Two positives a class and K = 1.5 make three. After one visit observed positives stand near 0.8 + 0.2 f, and
    the third place of each class goes to the image with the largest f among the others: image 3, image 4, and in the
    last class image 0, which is known not to show it and stays a negative.
    """
    task = task_of(expected_positives=1.5)
    method = started(task)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    method.begin_epoch(2)
    assert left_out(method) == [(3, 0), (4, 1)]


def test_an_explicit_negative_takes_its_place_and_stays_a_negative():
    """With K = 2 there is a fourth place in each class; in the last one it goes to image 2, behind image 0."""
    task = task_of(expected_positives=2.0)
    method = started(task)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    method.begin_epoch(2)
    assert left_out(method) == [(2, 0), (2, 2), (3, 0), (4, 1), (5, 1)]


def test_an_observed_positive_is_never_penalised():
    """With K = 0.5 one place a class is left, so that half of the observed positives fall out of the ranking."""
    task = task_of(expected_positives=0.5)
    method = started(task)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    method.begin_epoch(2)
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(method.loss(batch_of(ALL_IMAGES), Prediction(logits))["en"], logits)
    expected = (LOGITS.sigmoid() - 1) / LOGITS.numel()
    positive = torch.from_numpy(DENSE == 1)
    torch.testing.assert_close(gradient[positive], expected[positive])


def test_epochs_choose_by_the_running_scores():
    labels = single_positives(30, 5)
    task = task_of(labels, expected_positives=2.4)
    method = started(task)
    draws = torch.Generator().manual_seed(3)
    for epoch in (1, 2, 3):
        method.begin_epoch(epoch)
        scores = task.memory.scores(momentum=0.8).values.tolist()
        logits = torch.randn(30, 5, generator=draws)
        terms = visit(method, task, list(range(30)), Prediction(logits))
        if epoch > 1:
            counts = [int(2.4 * count + 0.5) for count in labels.positives]
            chosen = torch.tensor(top_per_class(scores, list(range(30)), counts))
            assert terms["en"] == expected_negative(logits, torch.from_numpy(labels.dense()), chosen)


def test_the_choice_stays_within_an_epoch():
    task = task_of()
    method = started(task)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    method.begin_epoch(2)
    before = left_out(method)
    visit(method, task, ALL_IMAGES, Prediction(-5 * LOGITS))
    assert left_out(method) == before


@pytest.mark.parametrize(
    ("positives", "expected", "count"),
    [(1, 1.5, 2), (1, 1.49, 1), (3, 1.5, 5), (2, 0.2, 0), (2, 100, 6)],
    ids=["half up", "down", "half up again", "none", "at most all"],
)
def test_expected_counts_are_rounded_half_up_and_capped(positives, expected, count):
    dense = np.full((6, 1), -1, dtype=np.int8)
    dense[:positives] = 1
    assert started(task_of(LabelMatrix.from_dense(dense), expected_positives=expected)).counts.tolist() == [count]


def test_large_counts_are_exact():
    class Crowded(LabelMatrix):
        positives = np.array([2**24 + 1, 0, 0])

    crowded = Crowded(LABELS.starts, LABELS.classes, LABELS.values, LABELS.width)
    assert started(task_of(crowded, size=2**30, expected_positives=1.0)).counts.tolist() == [2**24 + 1, 0, 0]


def test_the_option_comes_before_the_estimate():
    assert started(task_of(expected_positives=1.0), expected=2.0).counts.tolist() == [4, 4, 4]


def test_the_expected_number_is_needed():
    with pytest.raises(
        TagfillError, match=r"'en' needs the expected number .*: set expected_positives or options\.en\.expected"
    ):
        started(task_of(expected_positives=None))


def test_expected_positives_are_believed_by_ep():
    """The same choice as EN makes; entries that EN leaves out are pushed up here."""
    task = task_of(expected_positives=1.5)
    method = started(task, "ep")
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    method.begin_epoch(2)
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(method.loss(batch_of(ALL_IMAGES), Prediction(logits))["ep"], logits)
    unknown_and_raised = (gradient < 0) & torch.from_numpy(DENSE == -1)
    assert unknown_and_raised.nonzero().tolist() == [[3, 0], [4, 1]]


@pytest.mark.parametrize("name", ["en", "ep"])
def test_literally_an_observed_positive_outside_the_ranking_is_penalised_but_not_in_the_first_epoch(name):
    task = task_of(expected_positives=0.5)
    method = started(task, name, literal=True)
    first = visit(method, task, ALL_IMAGES, Prediction(LOGITS))[name]
    assert first == assume_negative(LOGITS, batch_of(ALL_IMAGES).labels)
    method.begin_epoch(2)
    likely = torch.tensor(top_per_class(task.memory.scores(momentum=0.8).values.tolist(), ALL_IMAGES, [1, 1, 1]))
    loss = method.loss(batch_of(ALL_IMAGES), Prediction(LOGITS))[name]
    labels = batch_of(ALL_IMAGES).labels
    assert loss == expected_negative(LOGITS, labels, likely, also_positive=name == "ep", literal=True)
    assert loss > expected_negative(LOGITS, labels, likely, also_positive=name == "ep")


@pytest.mark.parametrize(("name", "kind", "value"), [("en", "ignored", -1), ("ep", "pseudo-labelled", 1)])
def test_decisions_are_the_likely_positives_of_the_last_step(name, kind, value):
    task = task_of(expected_positives=1.5)
    method = started(task, name)
    assert method.decisions() is None
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert len(method.decisions()) == 0
    method.begin_epoch(2)
    visit(method, task, [4, 0], Prediction(LOGITS[[4, 0]]))
    found = method.decisions()
    assert (found.image.tolist(), found.label.tolist()) == ([4], [1])
    assert (found.kind.tolist(), found.value.tolist()) == ([kind], [value])


def warmed_up() -> Memory:
    """Scores that a stage with `warmup` left, which is AN in all its epochs."""
    task = task_of(expected_positives=1.5)
    method = started(task, warmup=True)
    for epoch in (1, 2, 3):
        method.begin_epoch(epoch)
        assert visit(method, task, ALL_IMAGES, Prediction(LOGITS))["en"] == assume_negative(
            LOGITS, batch_of(ALL_IMAGES).labels
        )
    return task.memory


@pytest.mark.parametrize("saved", [False, True])
def test_scores_of_a_warm_up_are_used_at_once_if_asked_for(saved):
    memory = warmed_up()
    if saved:
        memory = Memory(LABELS, np.arange(6), seed=0, saved=memory.state_dict())
    assert left_out(started(task_of(memory=memory), use_warmup_scores=True)) == [(3, 0), (4, 1)]
    assert left_out(started(task_of(memory=memory))) == []


def test_without_a_warm_up_there_is_nothing_to_use():
    assert left_out(started(task_of(), use_warmup_scores=True)) == []
    fresh = Memory(LABELS, np.arange(6), seed=0)
    fresh.scores(momentum=0.8)
    again = Memory(LABELS, np.arange(6), seed=0, saved=fresh.state_dict())
    assert left_out(started(task_of(memory=again), use_warmup_scores=True)) == []


@pytest.mark.parametrize("step", [1, 7])
def test_ranking_some_classes_at_a_time_changes_nothing(step, monkeypatch):
    chosen = []
    for ranked in (1 << 26, 30 * step):
        monkeypatch.setattr("tagfill.methods.scl._SCORES_AT_ONCE", ranked)
        task = task_of(single_positives(30, 5), expected_positives=2.4)
        method = started(task)
        visit(method, task, list(range(30)), Prediction(torch.randn(30, 5, generator=torch.Generator().manual_seed(1))))
        method.begin_epoch(2)
        chosen.append(task.memory.entries("expected_positives").keys.tolist())
    assert chosen[0] == chosen[1]


def test_with_a_few_classes_per_image_only_kept_ones_are_ignored():
    task = task_of(expected_positives=1.5)
    method = started(task, classes_per_image=2)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    method.begin_epoch(2)
    assert left_out(method) == [(3, 0), (4, 1)]  # both are the second class of their image
    assert task.memory.sizes()["scores"] == 6 * 6 * 2


def test_the_likely_positives_state_their_bytes_before_there_are_any():
    task = task_of(expected_positives=1.5)
    started(task)
    assert task.memory.sizes()["expected_positives"] == 8 * 9  # three of each class


def consistency_started(name: str, options=None, **changes):
    task, method = task_of(**changes), create(name, options)
    method.setup(task)
    method.begin_epoch(1)
    return task, method


def test_scores_are_written_once_however_many_parts_share_them():
    prediction = maps_of(ALL_IMAGES)
    after = []
    for name in ("en", "en+cl", "cl+en", "en+scl", "en+cl+scl"):
        task, method = consistency_started(name)
        visit(method, task, ALL_IMAGES, prediction)
        after.append(task.memory.scores(momentum=0.8).values)
    assert all(torch.equal(scores, after[0]) for scores in after)
    assert torch.equal(after[0], (0.8 * one_hot() + (1 - 0.8) * prediction.logits.sigmoid()).half())


def one_hot() -> torch.Tensor:
    return torch.from_numpy(LABELS.dense() == 1).float()


def test_the_target_of_cl_is_from_before_this_visit():
    task, method = consistency_started("an+cl", {"cl": {"weight": 1.0}})
    prediction = maps_of(ALL_IMAGES)
    terms = visit(method, task, ALL_IMAGES, prediction)
    assert terms["cl"] == consistency(prediction.logits, batch_of(ALL_IMAGES).labels, one_hot())


def test_the_target_of_scl_is_from_before_this_visit():
    task, method = consistency_started("an+scl", {"scl": {"weight": 1.0}})
    prediction = maps_of(ALL_IMAGES)
    terms = visit(method, task, ALL_IMAGES, prediction)
    target = one_hot()[:, :, None, None].expand(-1, -1, *GRID)
    assert terms["scl"] == pytest.approx(
        float(consistency(prediction.maps, batch_of(ALL_IMAGES).labels, target)), abs=1e-6
    )


def test_the_second_visit_is_compared_with_the_first():
    task, method = consistency_started("an+scl", {"scl": {"weight": 1.0, "momentum": 0.0}})
    prediction = maps_of(ALL_IMAGES)
    visit(method, task, ALL_IMAGES, prediction)
    assert float(visit(method, task, ALL_IMAGES, prediction)["scl"]) < 0.15
    assert float(visit(method, task, ALL_IMAGES, maps_of(ALL_IMAGES, seed=1))["scl"]) > 0.15


def test_a_mirrored_view_is_compared_with_the_mirrored_past():
    """A map that is high on the left, seen again in a mirrored view where it is high on the right."""
    task, method = consistency_started("an+scl", {"scl": {"weight": 1.0, "momentum": 0.0}})
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
    prediction, values = maps_of(ALL_IMAGES), []
    for weight in (1.0, 0.25):
        task, method = consistency_started(f"an+{term}", {term: {"weight": weight}})
        values.append(float(visit(method, task, ALL_IMAGES, prediction)[term]))
    assert values[1] == pytest.approx(values[0] / 4)


def test_views_that_are_not_exact_are_refused():
    _, method = consistency_started("en+scl")
    with pytest.raises(
        TagfillError, match="'scl' needs views that are exact crops and flips; remove strong augmentation"
    ):
        method.loss(batch_of([0, 1], exact=False), maps_of([0, 1]))


def test_a_head_without_maps_is_refused():
    with pytest.raises(TagfillError, match="'scl' needs class maps; choose a head that makes them, such as cam"):
        consistency_started("en+scl", grid=None)


def test_different_momenta_for_shared_scores_are_refused():
    with pytest.raises(TagfillError, match="want different 'scores' memories"):
        consistency_started("en+cl", {"cl": {"momentum": 0.9}})


def test_heatmaps_have_twice_the_resolution_of_the_maps():
    task, _ = consistency_started("an+scl")
    assert task.memory.sizes()["heatmaps"] == 6 * 3 * 4 * 4


@pytest.mark.parametrize("term", ["cl", "scl"])
@pytest.mark.parametrize("distance", ["l1", "l2", "jsd"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean", "known"])
def test_distance_and_reduction_are_those_asked_for(term, distance, reduction):
    options = {"weight": 1.0, "distance": distance, "reduction": reduction}
    task, method = consistency_started(f"an+{term}", {term: options})
    prediction = maps_of(ALL_IMAGES)
    value = visit(method, task, ALL_IMAGES, prediction)[term]
    target = one_hot() if term == "cl" else one_hot()[:, :, None, None].expand(-1, -1, *GRID)
    seen = prediction.logits if term == "cl" else prediction.maps
    labels = batch_of(ALL_IMAGES).labels
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
    task, method = consistency_started("an+scl", {"scl": {"weight": 1.0, "classes_per_image": 2}})
    first, second = maps_of(ALL_IMAGES), maps_of(ALL_IMAGES, seed=1)
    assert visit(method, task, ALL_IMAGES, first)["scl"] == 0
    scores = task.memory.scores(momentum=0.8).values.float()
    method.begin_epoch(2)
    kept = task.memory.heatmaps(momentum=0.8, size=4, classes_per_image=2).kept(torch.arange(6))
    expected = (scores + 2 * one_hot()).topk(2).indices.sort(1).values
    assert torch.equal(kept, expected)
    value = visit(method, task, ALL_IMAGES, second)["scl"]
    target = one_hot().gather(1, kept)[:, :, None, None].expand(-1, -1, *GRID)
    maps = second.maps.gather(1, kept[:, :, None, None].expand(-1, -1, *GRID))
    assert float(value) == pytest.approx(
        float(consistency(maps, batch_of(ALL_IMAGES).labels.gather(1, kept), target)), rel=1e-5
    )
    method.begin_epoch(3)
    assert torch.equal(task.memory.heatmaps(momentum=0.8, size=4, classes_per_image=2).kept(torch.arange(6)), kept)


def test_a_few_classes_are_settled_at_once_after_a_warm_up():
    task, warmup = consistency_started("en", {"en": {"warmup": True}})
    visit(warmup, task, ALL_IMAGES, maps_of(ALL_IMAGES))
    _, method = consistency_started("en+scl", {"scl": {"classes_per_image": 1}}, memory=task.memory)
    assert float(visit(method, task, ALL_IMAGES, maps_of(ALL_IMAGES))["scl"].detach()) > 0


def test_heatmaps_of_kept_classes_equal_those_of_all():
    few, method = consistency_started("an+scl", {"scl": {"classes_per_image": 2}})
    visit(method, few, ALL_IMAGES, maps_of(ALL_IMAGES))
    method.begin_epoch(2)
    every, dense = consistency_started("an+scl")
    for seed in (1, 2):
        visit(method, few, ALL_IMAGES, maps_of(ALL_IMAGES, seed=seed))
        visit(dense, every, ALL_IMAGES, maps_of(ALL_IMAGES, seed=seed))
    index, whole = torch.arange(6), Geometry.whole(6)
    sparse = few.memory.heatmaps(momentum=0.8, size=4, classes_per_image=2)
    kept = sparse.kept(index)[:, :, None, None].expand(-1, -1, 4, 4)
    expected = every.memory.heatmaps(momentum=0.8, size=4).read(index, whole, (4, 4)).gather(1, kept)
    assert torch.equal(sparse.read(index, whole, (4, 4)), expected)


def test_the_noise_of_rounding_knows_its_epoch_after_a_resume():
    prediction, values = maps_of(ALL_IMAGES), []
    task, method = consistency_started("an+scl", {"scl": {"rounding": "stochastic"}})
    method.begin_epoch(7)
    state = method.state_dict()
    visit(method, task, ALL_IMAGES, prediction)
    for restored in (state, {}):
        other_task, other = consistency_started("an+scl", {"scl": {"rounding": "stochastic"}})
        if restored:
            other.load_state_dict(restored)
        visit(other, other_task, ALL_IMAGES, prediction)
        values.append(other_task.memory.state_dict()["heatmaps.values"])
    assert torch.equal(values[0], task.memory.state_dict()["heatmaps.values"])
    assert not torch.equal(values[1], values[0])
