from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.hill import hill as reference
from tagfill.losses import hill


def test_worked_example():
    assert hill(LOGITS, LABELS, reduction="sum").item() == pytest.approx(0.952161, abs=1e-6)


@pytest.mark.parametrize(("peak", "margin", "gamma"), [(1.5, 1.0, 2.0), (2.0, 0.5, 1.0)])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(peak, margin, gamma, eps, batch):
    options = {"peak": peak, "margin": margin, "gamma": gamma, "eps": eps}
    loss = hill(batch.logits, batch.labels, reduction="sum", **options)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_a_negative_that_the_model_is_sure_of_is_hardly_pushed():
    """The slope in f is 2λf − 3f²: largest at f = λ/3 = 1/2, and zero at f = 1."""
    logits = torch.tensor([[-3.0, 0.0, 8.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(hill(logits, torch.tensor([[-1, -1, 0]]), reduction="sum"), logits)
    f = logits.detach().sigmoid()
    torch.testing.assert_close(gradient, (3 * f - 3 * f**2) * f * (1 - f))
    assert gradient[0, 1] > 100 * gradient[0, 2] > 0
