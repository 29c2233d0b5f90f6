from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.asymmetric import asymmetric as reference
from reference.hill import hill as hill_reference
from tagfill.losses import assume_negative, asymmetric, hill

FOCAL = {"gamma_positive": 2.0, "gamma_negative": 2.0, "margin": 0.0}


def test_worked_example():
    assert asymmetric(LOGITS, LABELS, reduction="sum").item() == pytest.approx(0.449246, abs=1e-6)


def test_worked_example_of_query2label():
    loss = 1000 * asymmetric(LOGITS, LABELS, gamma_negative=2, margin=0, eps=1e-5)
    assert loss.item() == pytest.approx(121.39801, abs=1e-5)


@pytest.mark.parametrize(
    ("gamma_positive", "gamma_negative", "margin", "eps"),
    [(0.0, 4.0, 0.05, 0.0), (2.0, 2.0, 0.0, 0.0), (1.0, 1.0, 0.2, 1e-3)],
)
@modest
@given(batch=batches())
def test_equals_the_formula(gamma_positive, gamma_negative, margin, eps, batch):
    options = {"gamma_positive": gamma_positive, "gamma_negative": gamma_negative, "margin": margin, "eps": eps}
    loss = asymmetric(batch.logits, batch.labels, reduction="sum", **options)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_without_powers_and_margin_it_assumes_negatives():
    plain = asymmetric(LOGITS, LABELS, gamma_positive=0, gamma_negative=0, margin=0)
    assert plain == assume_negative(LOGITS, LABELS)


def test_easy_negatives_below_the_margin_cost_nothing():
    logits = torch.tensor([[-3.0, -2.0]], requires_grad=True)  # probabilities 0.047 and 0.119
    loss = asymmetric(logits, torch.tensor([[0, 0]]), reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss[0, 0] == 0
    assert gradient[0, 0] == 0
    assert gradient[0, 1] > 0


def test_the_weight_of_a_focal_loss_is_held_still():
    """Entry by entry: (1−p)² times the gradient of cross-entropy."""
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(asymmetric(logits, LABELS, reduction="sum", **FOCAL), logits)
    f = LOGITS.sigmoid()
    torch.testing.assert_close(gradient, torch.where(LABELS == 1, -((1 - f) ** 3), f**3))


def test_the_gradient_through_the_weight_can_be_asked_for():
    """Positives: d/dg (1−f)²(−log f) = −(1−f)³ − 2 f (1−f)² (−log f); negatives are the mirror image."""
    logits = LOGITS.clone().requires_grad_()
    loss = asymmetric(logits, LABELS, reduction="sum", focal_gradient=True, **FOCAL)
    (gradient,) = torch.autograd.grad(loss, logits)
    f = LOGITS.sigmoid()
    present = -((1 - f) ** 3) + 2 * f * (1 - f) ** 2 * f.log()
    absent = f**3 - 2 * (1 - f) * f**2 * (1 - f).log()
    torch.testing.assert_close(gradient, torch.where(LABELS == 1, present, absent))


def test_the_gradient_does_not_change_the_value():
    assert asymmetric(LOGITS, LABELS) == asymmetric(LOGITS, LABELS, focal_gradient=True)


def test_eps_is_a_floor_of_probabilities():
    loss = asymmetric(torch.tensor([[-1e4]]), torch.tensor([[1]]), eps=1e-8)
    assert loss.item() == pytest.approx(-math.log(1e-8))


def test_hill_worked_example():
    assert hill(LOGITS, LABELS, reduction="sum").item() == pytest.approx(0.952161, abs=1e-6)


@pytest.mark.parametrize(("peak", "margin", "gamma"), [(1.5, 1.0, 2.0), (2.0, 0.5, 1.0)])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_hill_equals_the_formula(peak, margin, gamma, eps, batch):
    options = {"peak": peak, "margin": margin, "gamma": gamma, "eps": eps}
    loss = hill(batch.logits, batch.labels, reduction="sum", **options)
    expected = hill_reference(batch.logits.tolist(), batch.labels.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_a_negative_with_a_confident_prediction_is_hardly_pushed_down():
    """The slope in f is 2λf − 3f²: largest at f = λ/3 = 1/2, and zero at f = 1."""
    logits = torch.tensor([[-3.0, 0.0, 8.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(hill(logits, torch.tensor([[-1, -1, 0]]), reduction="sum"), logits)
    f = logits.detach().sigmoid()
    torch.testing.assert_close(gradient, (3 * f - 3 * f**2) * f * (1 - f))
    assert gradient[0, 1] > 100 * gradient[0, 2] > 0
