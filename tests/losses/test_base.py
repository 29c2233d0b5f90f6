from __future__ import annotations

import pytest
import torch

from reference import terms as reference
from tagfill.losses import reduce
from tagfill.losses.base import cross_entropy, hard_cross_entropy, negative_term, positive_term


@pytest.mark.parametrize(
    ("reduction", "expected"), [("mean", 21 / 6), ("sum", 21), ("batchmean", 21 / 2), ("known", 21 / 4)]
)
def test_each_divides_by_its_own_count(reduction, expected):
    loss = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    labels = torch.tensor([[1, 0, -1], [-1, 0, 0]])
    assert reduce(loss, labels, reduction).item() == pytest.approx(expected)


def test_none_is_the_loss_itself():
    loss = torch.ones(2, 3)
    assert reduce(loss, torch.ones(2, 3), "none") is loss


def test_known_of_maps_counts_their_cells():
    maps = torch.ones(2, 3, 4, 4)
    labels = torch.tensor([[1, 0, -1], [-1, -1, -1]])
    assert reduce(maps, labels, "known").item() == 2 * 3 * 16 / (2 * 16)


def test_nothing_known_divides_by_one():
    assert reduce(torch.ones(1, 2), torch.tensor([[-1, -1]]), "known").item() == 2


def test_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no reduction 'average'. Known: mean, sum"):
        reduce(torch.ones(1, 1), torch.ones(1, 1), "average")


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


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_hard_targets_give_the_bits_of_soft_ones(eps):
    g = torch.cat([20 * torch.randn(500, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 1e4, -1e4])])
    present = torch.arange(len(g)) % 3 == 0
    found = []
    for hard in (True, False):
        logits = g.clone().requires_grad_()
        loss = hard_cross_entropy(logits, present, eps) if hard else cross_entropy(logits, present.float(), eps)
        loss.sum().backward()
        found.append((loss, logits.grad))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
