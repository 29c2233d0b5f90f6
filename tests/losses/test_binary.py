from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.binary import binary as reference
from reference.weighted_known import weighted_known as weighted_reference
from tagfill.losses import binary, ignore_unknown, weighted_known


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


def test_weighted_worked_example():
    assert weighted_known(LOGITS, LABELS).item() == pytest.approx(0.179958, abs=1e-6)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("reduction", ["mean", "batchmean"])
@modest
@given(batch=batches())
def test_weighted_equals_the_formula(eps, reduction, batch):
    loss = weighted_known(batch.logits, batch.labels, reduction=reduction, eps=eps)
    expected = weighted_reference(batch.logits.tolist(), batch.labels.tolist(), eps, divided=reduction == "mean")
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "batchmean"])
def test_a_complete_image_has_the_weight_one(reduction):
    complete = torch.where(LABELS == -1, 0, LABELS)
    weighted = weighted_known(LOGITS, complete, reduction=reduction)
    torch.testing.assert_close(weighted, binary(LOGITS, complete, reduction=reduction))


def test_an_image_of_ten_with_one_known_label_counts_five_times():
    logits, labels = torch.zeros(1, 10), torch.full((1, 10), -1)
    labels[0, 3] = 0
    ratio = weighted_known(logits, labels) / binary(logits, labels)
    assert ratio.item() == pytest.approx(5.005, abs=1e-4)
