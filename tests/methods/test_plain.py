from __future__ import annotations

import pytest

from methods.cases import batch_of, maps_of, task_of
from tagfill import losses
from tagfill.methods import create


@pytest.mark.parametrize(("name", "function"), [("an", losses.assume_negative), ("bce", losses.binary)])
def test_a_plain_method_is_its_loss(name, function):
    method = create(name)
    method.setup(task_of(expected_positives=None, grid=None))
    batch, prediction = batch_of([5, 0, 2]), maps_of([5, 0, 2])
    assert method.loss(batch, prediction) == {name: function(prediction.logits, batch.labels)}


@pytest.mark.parametrize("name", ["an", "bce"])
def test_a_plain_method_asks_for_no_memory(name):
    task = task_of()
    create(name).setup(task)
    assert task.memory.sizes() == {}
