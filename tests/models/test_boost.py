from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import boost as reference
from tagfill.models import boost

SCORES = [-7.5, -1.0, -1e-6, 0.0, 1e-6, 0.25, 0.5, 0.75, 2.0, 31.0]
settings = pytest.mark.parametrize(("alpha", "beta"), [(5.0, 0.0), (5.0, 0.5), (2.5, -1.0), (1.0, 0.0)])


def test_golden_value():
    scores = torch.tensor([[1.0, -2.0], [0.5, 0.0]])
    assert boost(scores, 5.0).mean().item() == 1.375
    assert boost(scores, 1.0).mean().item() == -0.125


@settings
def test_values_are_those_of_the_two_pieces(alpha, beta):
    expected = [reference.boost(score, alpha, beta) for score in SCORES]
    found = boost(torch.tensor(SCORES, dtype=torch.float64), alpha, beta)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=1e-14)


@settings
def test_the_gradient_is_the_slope_of_each_piece(alpha, beta):
    scores = torch.tensor([*SCORES, beta], dtype=torch.float64, requires_grad=True)
    boost(scores, alpha, beta).sum().backward()
    assert scores.grad.tolist() == [reference.slope(score, alpha, beta) for score in scores.tolist()]


def test_each_class_may_have_its_own_slope():
    scores = torch.tensor([[1.0, 1.0], [-1.0, 2.0]])
    assert boost(scores, torch.tensor([5.0, 1.0])).tolist() == [[5.0, 1.0], [-1.0, 2.0]]


@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.floats(1, 100), st.floats(-10, 10))
def test_order_is_kept(one, other, alpha, beta):
    low, high = boost(torch.tensor([min(one, other), max(one, other)], dtype=torch.float64), alpha, beta).tolist()
    assert low <= high
