from __future__ import annotations

import pytest
import torch

from methods.cases import batch_of, maps_of, task_of, visit
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.losses import role
from tagfill.methods import create

EVERYBODY = [0, 1, 2, 3, 4, 5]


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
    method.loss(batch_of(EVERYBODY), maps_of(EVERYBODY))
    assert torch.equal(task.memory.estimates().values, before)


@pytest.mark.parametrize("multiplier", [10.0, 2.0])
def test_the_first_step_of_the_table_is_its_learning_rate_long(multiplier):
    """Adam's first step has the length of the learning rate in every entry: the multiplier times the classifier's."""
    task, method = started(lr_multiplier=multiplier)
    before = task.memory.estimates().values.detach().clone()
    visit(method, task, EVERYBODY, maps_of(EVERYBODY))
    moved = (task.memory.estimates().values.detach() - before).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, multiplier * task.lr), rtol=1e-3, atol=0)


def test_the_table_follows_the_current_learning_rate():
    task, method = started()
    task.lr = 0.0
    before = task.memory.estimates().values.detach().clone()
    visit(method, task, EVERYBODY, maps_of(EVERYBODY))
    assert torch.equal(task.memory.estimates().values, before)


def test_observing_works_where_gradients_are_off():
    task, method = started()
    before = task.memory.estimates().values.detach().clone()
    with torch.no_grad():
        method.observe(batch_of(EVERYBODY), Prediction(torch.ones(6, 3)))
    assert not torch.equal(task.memory.estimates().values, before)


def test_the_expected_number_is_needed():
    with pytest.raises(TagfillError, match=r"'role' needs the expected number .*: set expected_positives, or"):
        create("role").setup(task_of(expected_positives=None))
