from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from methods.cases import LABELS, batch_of, task_of, visit
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.losses import selective
from tagfill.memory import Memory
from tagfill.methods import create

# Classes a and b have known positives and negatives, c has positives only.
DENSE = np.array(
    [[1, 0, -1], [0, 1, 1], [-1, -1, 1], [1, -1, -1], [-1, 0, -1], [-1, -1, -1]],
    dtype=np.int8,
)
BOTH = LabelMatrix.from_dense(DENSE)
ALL_IMAGES = [0, 1, 2, 3, 4, 5]
LOGITS = torch.tensor(
    [
        [3.0, -1.0, 2.0],
        [2.0, -2.0, -3.0],
        [-1.0, -1.5, 1.0],
        [4.0, -4.0, -2.0],
        [-3.0, -2.5, 1.5],
        [-1.75, -0.5, -9.0],
    ]
)
UNKNOWN = torch.from_numpy(DENSE) == -1


def started(name, task, epoch=1, **options):
    method = create(name, {name: options})
    method.setup(task)
    for number in range(1, epoch + 1):
        method.begin_epoch(number)
    return method


def ignored(method) -> list[tuple[int, int]]:
    decisions = method.decisions()
    assert set(decisions.kind.tolist()) <= {"ignored"}
    assert set(decisions.value.tolist()) <= {-1}
    return list(zip(decisions.image.tolist(), decisions.label.tolist(), strict=True))


def after_a_helper(logits: torch.Tensor = LOGITS, labels: LabelMatrix = BOTH, **changes):
    """A task whose memory holds the prior of a stage with p-asl."""
    task = task_of(labels, **changes)
    visit(started("p-asl", task), task, ALL_IMAGES, Prediction(logits))
    return task


@pytest.mark.parametrize("mode", ["ignore", "negative", "ignore_normalized"])
def test_p_asl_is_its_loss(mode):
    task = task_of(BOTH)
    method = started("p-asl", task, mode=mode, gammas=[0, 3, 4], clip=0.05)
    terms = visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    options = {"gammas": (0, 3, 4), "clip": 0.05, "mode": mode}
    assert terms == {"p-asl": selective(LOGITS, batch_of(ALL_IMAGES, BOTH).labels, reduction="sum", **options)}
    assert method.decisions() is None


def test_p_asl_estimates_the_prior_where_it_ignores():
    task = after_a_helper()
    torch.testing.assert_close(task.memory.prior().mean(task.ranks), LOGITS.sigmoid().double().mean(0))


def test_p_asl_with_negatives_keeps_no_prior():
    task = task_of(BOTH)
    visit(started("p-asl", task, mode="negative"), task, ALL_IMAGES, Prediction(LOGITS))
    assert task.memory.sizes() == {}


def test_likelihood_is_over_the_whole_batch():
    """One place per image makes six, and they go to the largest unknown logits of the batch."""
    task = task_of(BOTH)
    method = started("csl", task, prior="none", likely=1)
    terms = visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert ignored(method) == [(0, 2), (2, 0), (2, 1), (4, 2), (5, 0), (5, 1)]
    mask = torch.zeros(6, 3, dtype=torch.bool)
    mask[tuple(zip(*ignored(method), strict=True))] = True
    expected = selective(LOGITS, batch_of(ALL_IMAGES, BOTH).labels, ignore=mask, reduction="sum")
    assert terms == {"csl": expected}


def test_no_places_leave_the_prior_alone():
    task = after_a_helper()
    method = started("csl", task, likely=0, threshold=0.2)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert ignored(method) == [(2, 0), (4, 0), (5, 0)]


def test_what_the_prior_leaves_out_still_takes_places():
    """The same six places as without a prior, and all other unknowns of class a."""
    task = after_a_helper()
    method = started("csl", task, likely=1, threshold=0.2)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert ignored(method) == [(0, 2), (2, 0), (2, 1), (4, 0), (4, 2), (5, 0), (5, 1)]


def test_prior_above_and_not_at_the_threshold():
    task = after_a_helper(torch.zeros(6, 3))
    for threshold, count in ((0.5, 0), (0.499, 6)):
        method = started("csl", task, likely=0, threshold=threshold)
        visit(method, task, ALL_IMAGES, Prediction(LOGITS))
        assert len(ignored(method)) == count


def test_a_class_without_known_negatives_has_no_prior():
    """Its helper learns to see it everywhere."""
    task = after_a_helper(torch.full((6, 3), 9.0))
    method = started("csl", task, likely=0)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert {label for _, label in ignored(method)} == {0, 1}


def test_prior_of_an_earlier_stage_is_used_from_the_first_step_and_kept():
    task = after_a_helper()
    before = task.memory.prior().mean(task.ranks)
    method = started("csl", task)
    assert "csl" in visit(method, task, ALL_IMAGES, Prediction(-LOGITS))
    assert torch.equal(task.memory.prior().mean(task.ranks), before)


def test_without_an_earlier_stage_the_first_epochs_are_the_helper():
    task = task_of(BOTH, epochs=10)
    method = started("csl", task, threshold=0.2, likely=0)
    names = []
    for epoch in range(1, 5):
        method.begin_epoch(epoch)
        names += visit(method, task, ALL_IMAGES, Prediction(LOGITS if epoch == 2 else -LOGITS))
        if epoch < 3:
            assert method.decisions() is None
    assert names == ["p-asl", "p-asl", "csl", "csl"]
    torch.testing.assert_close(task.memory.prior().mean(task.ranks), LOGITS.sigmoid().double().mean(0))
    assert ignored(method) == [(2, 0), (4, 0), (5, 0)]


@pytest.mark.parametrize(
    ("epochs", "asked", "helper"), [(1, None, 0), (2, None, 1), (9, None, 1), (25, None, 5), (9, 4, 4)]
)
def test_length_of_the_helper(epochs, asked, helper):
    method = started("csl", task_of(BOTH, epochs=epochs), prior_epochs=asked)
    assert int(method.state_dict()["helper_epochs"]) == helper


@pytest.mark.parametrize("dense", [np.where(DENSE == 1, 1, -1), np.full((6, 3), -1)], ids=["positives", "nothing"])
def test_labels_without_negatives_are_selected_by_likelihood_from_the_start(dense):
    task = task_of(LabelMatrix.from_dense(dense.astype(np.int8)), epochs=10)
    method = started("csl", task)
    terms = visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert list(terms) == ["csl"]
    assert terms["csl"].isfinite()


def test_complete_labels_leave_nothing_to_ignore():
    labels = LabelMatrix.from_dense(np.where(DENSE == 1, 1, 0).astype(np.int8))
    task = task_of(labels, epochs=10)
    method = started("csl", task, epoch=3)
    terms = visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert ignored(method) == []
    assert terms["csl"] == selective(LOGITS, batch_of(ALL_IMAGES, labels).labels, reduction="sum")


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_run_that_is_resumed_within_an_epoch_goes_on_alike(epoch):
    """As helper, in its last epoch as one, and after it."""
    unbroken = task_of(BOTH, epochs=10)
    method = started("csl", unbroken, likely=1, threshold=0.2)
    for number in range(1, epoch + 1):
        method.begin_epoch(number)
        visit(method, unbroken, [0, 1, 2], Prediction(LOGITS[:3] * number))
    saved = {name: value.clone() for name, value in unbroken.memory.state_dict().items()}
    resumed = task_of(BOTH, epochs=10, memory=Memory(BOTH, np.arange(6), seed=0, saved=saved))
    again = create("csl", {"csl": {"likely": 1, "threshold": 0.2}})
    again.setup(resumed)
    again.load_state_dict(method.state_dict())
    for each, task in ((method, unbroken), (again, resumed)):
        terms = visit(each, task, [3, 4, 5], Prediction(LOGITS[3:]))
        each.begin_epoch(epoch + 1)
        visit(each, task, [3, 4, 5], Prediction(LOGITS[3:]))
        task.terms = terms
    assert unbroken.terms == resumed.terms
    assert torch.equal(again.state_dict()["prior"], method.state_dict()["prior"])
    assert torch.equal(resumed.memory.prior().mean(resumed.ranks), unbroken.memory.prior().mean(unbroken.ranks))


def test_prior_from_a_file(tmp_path: Path):
    path = tmp_path / "prior.csv"
    path.write_text("Classes,avg_pred\nc,0.9\na,0.01\nb,0.01\n")
    task = task_of(BOTH)
    method = started("csl", task, prior=str(path), likely=0)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert ignored(method) == [(0, 2), (3, 2), (4, 2), (5, 2)]
    assert task.memory.sizes() == {}


@pytest.mark.parametrize("begun", [True, False])
def test_a_resumed_run_asks_for_the_file_only_if_the_first_epoch_had_not_begun(tmp_path: Path, begun: bool):
    path = tmp_path / "prior.csv"
    path.write_text("Classes,avg_pred\nc,0.9\na,0.01\nb,0.01\n")
    method, again = (create("csl", {"csl": {"prior": str(path), "likely": 0}}) for _ in range(2))
    method.setup(task_of(BOTH))
    if begun:
        method.begin_epoch(1)
        path.unlink()
    task = task_of(BOTH)
    again.setup(task)
    again.load_state_dict(method.state_dict())
    again.begin_epoch(2 if begun else 1)
    visit(again, task, ALL_IMAGES, Prediction(LOGITS))
    assert ignored(again) == [(0, 2), (3, 2), (4, 2), (5, 2)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prior_epochs": 0}, "'csl' has no prior: train a stage with p-asl before it and start with memory: last"),
        ({"prior_epochs": 3}, "prior_epochs is 3; at least one of the stage's 3 epochs"),
        ({"prior": "nowhere.csv"}, "prior nowhere.csv cannot be read"),
        ({"gammas": [1, 2]}, r"options.csl.gammas is \[1.0, 2.0\]; give three"),
    ],
)
def test_what_makes_no_sense_is_refused(options, sentence):
    with pytest.raises(TagfillError, match=sentence):
        started("csl", task_of(BOTH), **options)


def test_unknown_modes_are_refused():
    with pytest.raises(TagfillError, match=r"mode='selective' of method 'p-asl': Input should be 'negative'"):
        create("p-asl", {"p-asl": {"mode": "selective"}})


def test_single_positives_of_the_other_tests_work_too():
    task = task_of(LABELS)
    assert started("csl", task).state_dict()["helper_epochs"] == 1  # image 0 is known not to show class c
