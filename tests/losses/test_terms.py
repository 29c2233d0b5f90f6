from __future__ import annotations

import pytest
import torch

from reference import terms as reference
from tagfill.losses.base import cross_entropy, negative_term, positive_term


@pytest.mark.parametrize("logit", [-30.0, -3.0, 0.0, 0.5, 30.0])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_terms_are_logarithms_of_probabilities(logit, eps):
    g = torch.tensor(logit, dtype=torch.float64)
    assert positive_term(g, eps).item() == pytest.approx(reference.positive_term(logit, eps), rel=1e-12, abs=1e-15)
    assert negative_term(g, eps).item() == pytest.approx(reference.negative_term(logit, eps), rel=1e-12, abs=1e-15)


def test_small_losses_are_not_lost_in_single_precision():
    assert negative_term(torch.tensor(-30.0)).item() == pytest.approx(9.357622968840175e-14)


def test_eps_caps_the_loss_and_its_gradient_where_the_model_is_wrong():
    logit = torch.tensor(-40.0, requires_grad=True)
    loss = positive_term(logit, eps=1e-5)
    loss.backward()
    assert loss.item() == pytest.approx(11.5129, abs=1e-4)
    assert abs(logit.grad.item()) < 1e-10


def test_soft_targets_mix_the_terms():
    g = torch.tensor(0.7, dtype=torch.float64)
    expected = 0.3 * positive_term(g) + 0.7 * negative_term(g)
    assert cross_entropy(g, torch.tensor(0.3, dtype=torch.float64)).item() == pytest.approx(expected.item())
