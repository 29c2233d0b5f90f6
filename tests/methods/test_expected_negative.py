from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from methods.cases import DENSE, LABELS, batch_of, task_of, visit
from reference.ranking import top_per_class
from tagfill.contract import LabelMatrix, Prediction
from tagfill.errors import TagfillError
from tagfill.losses import assume_negative, expected_negative
from tagfill.methods import create

EVERYBODY = [0, 1, 2, 3, 4, 5]
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


def started(task, **options):
    method = create("en", {"en": options})
    method.setup(task)
    method.begin_epoch(1)
    return method


@pytest.mark.parametrize("images", [EVERYBODY, [4, 1]])
def test_the_first_epoch_is_assume_negative(images):
    """Explicit negatives included, and whatever was seen before in the same epoch."""
    task = task_of()
    method = started(task)
    visit(method, task, EVERYBODY, Prediction(LOGITS))
    loss = method.loss(batch_of(images), Prediction(LOGITS[images]))["en"]
    assert loss == assume_negative(LOGITS[images], batch_of(images).labels)


def left_out(method) -> list[tuple[int, int]]:
    """The entries that cost nothing: unknown ones that are not taken for negatives."""
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(method.loss(batch_of(EVERYBODY), Prediction(logits))["en"], logits)
    return [tuple(entry) for entry in (gradient == 0).nonzero().tolist()]


def test_later_epochs_leave_out_the_expected_positives():
    """Two positives a class and K = 1.5 make three. After one visit observed positives stand near 0.8 + 0.2 f, and
    the third place of each class goes to the image with the largest f among the others: image 3, image 4, and in the
    last class image 0, which is known not to show it and stays a negative.
    """
    task = task_of(expected_positives=1.5)
    method = started(task)
    visit(method, task, EVERYBODY, Prediction(LOGITS))
    method.begin_epoch(2)
    assert left_out(method) == [(3, 0), (4, 1)]


def test_an_explicit_negative_takes_its_place_and_stays_a_negative():
    """With K = 2 there is a fourth place in each class; in the last one it goes to image 2, behind image 0."""
    task = task_of(expected_positives=2.0)
    method = started(task)
    visit(method, task, EVERYBODY, Prediction(LOGITS))
    method.begin_epoch(2)
    assert left_out(method) == [(2, 0), (2, 2), (3, 0), (4, 1), (5, 1)]


def test_an_observed_positive_is_never_penalised():
    """With K = 0.5 one place a class is left, so that half of the observed positives fall out of the ranking."""
    task = task_of(expected_positives=0.5)
    method = started(task)
    visit(method, task, EVERYBODY, Prediction(LOGITS))
    method.begin_epoch(2)
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(method.loss(batch_of(EVERYBODY), Prediction(logits))["en"], logits)
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
    visit(method, task, EVERYBODY, Prediction(LOGITS))
    method.begin_epoch(2)
    before = left_out(method)
    visit(method, task, EVERYBODY, Prediction(-5 * LOGITS))
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
    with pytest.raises(TagfillError, match=r"'en' needs the expected number .*: set options\.en\.expected, or"):
        started(task_of(expected_positives=None))
