from __future__ import annotations

import pytest
import torch

from methods.cases import batch_of, maps_of, task_of, visit
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.losses import role
from tagfill.methods import create

ALL_IMAGES = [0, 1, 2, 3, 4, 5]


def started(**options):
    task, method = task_of(expected_positives=1.5), create("role", {"role": options})
    method.setup(task)
    method.begin_epoch(1)
    return task, method


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_both_terms_add_up_to_the_loss_of_the_paper(eps):
    task, method = started(eps=eps)
    batch, prediction = batch_of([3, 0]), maps_of([3, 0])
    terms = method.loss(batch, prediction)
    estimates = task.memory.estimates().read(batch.index)
    expected = role(prediction.logits, batch.labels, estimates, expected=1.5, eps=eps)
    assert float(sum(terms.values())) == pytest.approx(float(expected))


def test_computing_the_loss_leaves_the_table_alone():
    task, method = started()
    before = task.memory.estimates().values.detach().clone()
    method.loss(batch_of(ALL_IMAGES), maps_of(ALL_IMAGES))
    assert torch.equal(task.memory.estimates().values, before)


@pytest.mark.parametrize("multiplier", [10.0, 2.0])
def test_the_first_step_of_the_table_is_its_learning_rate_long(multiplier):
    """Adam's first step has the length of the learning rate in every entry: the multiplier times the classifier's."""
    task, method = started(lr_multiplier=multiplier)
    before = task.memory.estimates().values.detach().clone()
    visit(method, task, ALL_IMAGES, maps_of(ALL_IMAGES))
    moved = (task.memory.estimates().values.detach() - before).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, multiplier * task.lr), rtol=1e-3, atol=0)


def test_the_table_follows_the_current_learning_rate():
    task, method = started()
    task.lr = 0.0
    before = task.memory.estimates().values.detach().clone()
    visit(method, task, ALL_IMAGES, maps_of(ALL_IMAGES))
    assert torch.equal(task.memory.estimates().values, before)


def test_observing_works_where_gradients_are_off():
    task, method = started()
    before = task.memory.estimates().values.detach().clone()
    with torch.no_grad():
        method.observe(batch_of(ALL_IMAGES), Prediction(torch.ones(6, 3)))
    assert not torch.equal(task.memory.estimates().values, before)


def test_what_is_observed_counts_and_not_what_the_loss_was_asked_for():
    """A loss of other predictions in between changes nothing about the table's step."""
    tables = []
    for asked in (Prediction(-torch.ones(6, 3)), None):
        task, method = started()
        if asked is not None:
            method.loss(batch_of(ALL_IMAGES), asked)
        method.observe(batch_of(ALL_IMAGES), Prediction(torch.ones(6, 3)))
        tables.append(task.memory.estimates().values)
    assert torch.equal(*tables)


def test_the_loss_before_it_changes_nothing_about_a_step():
    tables = []
    for ask in (True, False):
        task, method = started()
        prediction = Prediction(torch.ones(6, 3))
        if ask:
            method.loss(batch_of(ALL_IMAGES), prediction)
        method.observe(batch_of(ALL_IMAGES), prediction.detach())
        tables.append(task.memory.estimates().values)
    assert torch.equal(*tables)


def test_the_expected_number_is_needed():
    with pytest.raises(
        TagfillError, match=r"'role' needs the expected number .*: set expected_positives or options\.role"
    ):
        create("role").setup(task_of(expected_positives=None))


def test_the_option_comes_before_the_estimate():
    task, method = started(expected=2.5)
    batch, prediction = batch_of([3, 0]), maps_of([3, 0])
    estimates = task.memory.estimates().read(batch.index)
    expected = role(prediction.logits, batch.labels, estimates, expected=2.5)
    assert float(sum(method.loss(batch, prediction).values())) == pytest.approx(float(expected))


def test_the_positive_term_can_be_a_mean_over_images():
    task, method = started(positive_term="batchmean")
    batch, prediction = batch_of([3, 0]), maps_of([3, 0])
    estimates = task.memory.estimates().read(batch.index)
    expected = role(prediction.logits, batch.labels, estimates, expected=1.5, positive_weight=3.0)
    assert float(sum(method.loss(batch, prediction).values())) == pytest.approx(float(expected))


def test_the_optimizer_can_be_chosen():
    """Plain gradient descent: the table moves against its gradient, at ten times the classifier's rate."""
    task, method = started(optimizer="sgd")
    table = task.memory.estimates(optimizer="sgd")
    start = table.values.detach().clone()
    visit(method, task, [3, 0], maps_of([3, 0]))
    rows = start[[3, 0]].requires_grad_()
    prediction = maps_of([3, 0])
    role(prediction.logits, batch_of([3, 0]).labels, rows, expected=1.5).backward()
    torch.testing.assert_close(table.values.detach()[[3, 0]], start[[3, 0]] - 10 * task.lr * rows.grad)
