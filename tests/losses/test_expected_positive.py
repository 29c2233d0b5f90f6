from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference import expected_positive as reference
from reference import role as role_reference
from tagfill.losses import expected_positive, positive_count_penalty, role, role_half


def test_worked_example():
    assert reference.positive_count(LOGITS.tolist()) == pytest.approx(1.816971, abs=1e-6)
    assert positive_count_penalty(LOGITS.sigmoid(), 1.5).item() == pytest.approx(0.006279, abs=1e-6)
    assert expected_positive(LOGITS, LABELS, expected=1.5, eps=1e-5).item() == pytest.approx(0.047319, abs=1e-6)


@pytest.mark.parametrize("weight", [1.0, 0.5])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(weight, eps, batch):
    loss = expected_positive(batch.logits, batch.labels, expected=1.5, weight=weight, eps=eps)
    expected = reference.expected_positive(batch.logits.tolist(), batch.labels.tolist(), 1.5, weight, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_penalty_is_zero_at_the_expected_count():
    probabilities = torch.tensor([[0.5, 0.5, 1.0], [1.0, 0.0, 0.0]])
    assert positive_count_penalty(probabilities, expected=1.5) == 0


def test_penalty_is_of_the_batch_and_not_of_an_image():
    uneven = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert positive_count_penalty(uneven, expected=1.5) == 0
    assert positive_count_penalty(uneven[:1], expected=1.5) == 0.25


def test_form_without_the_number_of_classes():
    images, classes = LABELS.shape
    positives = torch.nn.functional.softplus(-LOGITS[LABELS == 1]).sum() / images
    expected = positives + positive_count_penalty(LOGITS.sigmoid(), 1.5)
    loss = expected_positive(LOGITS, LABELS, expected=1.5, weight=1 / classes, reduction="batchmean")
    torch.testing.assert_close(loss, expected)


ESTIMATES = torch.tensor([[5, 0.2, -0.3, -5], [0.1, 5, -0.2, 0.3]], dtype=torch.float64)


def test_role_worked_example():
    assert role(LOGITS, LABELS, ESTIMATES, expected=1.5, eps=1e-5).item() == pytest.approx(0.654058, abs=1e-6)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_role_equals_the_formula(eps, batch):
    loss = role(batch.logits, batch.labels, batch.extra, expected=1.5, eps=eps)
    expected = role_reference.role(batch.logits.tolist(), batch.labels.tolist(), batch.extra.tolist(), 1.5, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_half_equals_the_formula(eps, batch):
    target = batch.extra.sigmoid()
    loss = role_half(batch.logits, batch.labels, target, expected=1.5, eps=eps)
    expected = role_reference.half(batch.logits.tolist(), batch.labels.tolist(), target.tolist(), 1.5, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def gradients(loss: torch.Tensor, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(loss, leaves)


def test_each_side_learns_from_its_own_half_alone():
    logits, estimates = LOGITS.clone().requires_grad_(), ESTIMATES.clone().requires_grad_()
    of_logits, of_estimates = gradients(role(logits, LABELS, estimates, expected=1.5), logits, estimates)

    (classifier,) = gradients(role_half(logits, LABELS, ESTIMATES.sigmoid(), expected=1.5), logits)
    (estimator,) = gradients(role_half(estimates, LABELS, LOGITS.sigmoid(), expected=1.5), estimates)

    torch.testing.assert_close(of_logits, classifier / 2)
    torch.testing.assert_close(of_estimates, estimator / 2)


def test_classifier_gradient_written_out():
    """Entry by entry: ½ ((f − q) − 1[z=1] (1 − f) + 2 (κ̂ − κ)/L · f (1 − f)) / (B·L)."""
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = gradients(role(logits, LABELS, ESTIMATES, expected=1.5), logits)

    images, classes = LABELS.shape
    f, q = LOGITS.sigmoid(), ESTIMATES.sigmoid()
    excess = (f.sum() / images - 1.5) / classes
    expected = ((f - q) - (LABELS == 1) * (1 - f) + 2 * excess * f * (1 - f)) / (2 * images * classes)

    torch.testing.assert_close(gradient, expected)


def test_no_gradient_flows_into_the_target():
    logits, target = LOGITS.clone().requires_grad_(), ESTIMATES.sigmoid().requires_grad_()
    role_half(logits, LABELS, target, expected=1.5).backward()
    assert target.grad is None


def test_target_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="logits are 2×4 and the target 1×4"):
        role(LOGITS, LABELS, ESTIMATES[:1], expected=1.5)
