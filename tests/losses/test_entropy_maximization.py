from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.entropy_maximization import entropy_maximization as reference
from tagfill.losses import entropy_maximization

SOFT = torch.tensor([[0.3, 0.2, -1.0, 0.1], [-1.0, -1.0, 0.0, 1.0]], dtype=torch.float64)


def test_worked_example():
    assert entropy_maximization(LOGITS, LABELS, alpha=0.1, eps=1e-5).item() == pytest.approx(0.001576, abs=1e-6)


@pytest.mark.parametrize("use_negatives", [False, True])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(use_negatives, eps, batch):
    options = {"alpha": 0.2, "use_negatives": use_negatives, "eps": eps}
    loss = entropy_maximization(batch.logits, batch.labels, **options)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("use_negatives", [False, True])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula_with_soft_negatives(use_negatives, eps, batch):
    soft = torch.where(batch.extra > 0, batch.extra / 3, -1.0)
    options = {"alpha": 0.2, "soft_weight": 0.7, "use_negatives": use_negatives, "eps": eps}
    loss = entropy_maximization(batch.logits, batch.labels, soft_labels=soft, **options)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), soft_labels=soft.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_unknown_labels_are_drawn_to_one_half():
    """The slope of the entropy term is α g f (1−f)."""
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(entropy_maximization(logits, LABELS, alpha=0.3, reduction="sum"), logits)
    f = LOGITS.sigmoid()
    torch.testing.assert_close(gradient, torch.where(LABELS == 1, f - 1, 0.3 * LOGITS * f * (1 - f)))


def test_an_observed_positive_keeps_its_label():
    with_soft = entropy_maximization(LOGITS, LABELS, soft_labels=SOFT, reduction="none")
    assert with_soft[0, 0] == entropy_maximization(LOGITS, LABELS, reduction="none")[0, 0]


def test_no_gradient_flows_into_soft_labels():
    logits, soft = LOGITS.clone().requires_grad_(), SOFT.clone().requires_grad_()
    entropy_maximization(logits, LABELS, soft_labels=soft).backward()
    assert soft.grad is None


def test_soft_labels_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="labels are 2×4 and the soft labels 1×4"):
        entropy_maximization(LOGITS, LABELS, soft_labels=SOFT[:1])
