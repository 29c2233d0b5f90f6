from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.binary import binary as reference
from tagfill.losses import binary, ignore_unknown


@pytest.mark.parametrize(("reduction", "value"), [("batchmean", 0.188464), ("known", 0.125643), ("mean", 0.047116)])
def test_worked_example(reduction, value):
    assert ignore_unknown(LOGITS, LABELS, reduction=reduction).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(smoothing, eps, batch):
    loss = binary(batch.logits, batch.labels, smoothing=smoothing, eps=eps)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), smoothing, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_complete_labels_give_the_cross_entropy_of_torch():
    complete = (LABELS == 1).double()
    expected = F.binary_cross_entropy_with_logits(LOGITS, complete)
    torch.testing.assert_close(binary(LOGITS, complete), expected)


def test_smoothing_targets_are_1_minus_epsilon_and_epsilon():
    complete = (LABELS == 1).double()
    expected = F.binary_cross_entropy_with_logits(LOGITS, 0.9 * complete + 0.1 * (1 - complete))
    torch.testing.assert_close(binary(LOGITS, complete, smoothing=0.1), expected)


def test_unknown_entries_have_no_gradient():
    logits = LOGITS.clone().requires_grad_()
    binary(logits, LABELS, smoothing=0.1).backward()
    assert torch.equal(logits.grad != 0, LABELS != -1)
