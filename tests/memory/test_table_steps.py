from __future__ import annotations

import pytest
import torch

from tagfill.memory.estimates import DenseAdam


@pytest.mark.parametrize("rows", [11, 1700])
def test_dense_adam_ends_with_the_bits_of_torch(rows):
    """1,700 rows of 83 entries are more than one block, and none of its ends is the end of a vector."""
    draws = torch.Generator().manual_seed(3)
    ours = torch.randn(rows, 83, generator=draws)
    theirs = torch.nn.Parameter(ours.clone())
    dense, adam = DenseAdam(ours), torch.optim.Adam([theirs], foreach=False)
    for number in range(12):
        chosen = torch.randperm(rows, generator=draws)[:7]
        gradient = 10.0 ** (number % 5 - 3) * torch.randn(7, 83, generator=draws)
        theirs.grad = torch.zeros_like(theirs)
        theirs.grad[chosen] = gradient
        adam.param_groups[0]["lr"] = lr = 0.1 / (1 + number)
        adam.step()
        dense.step(chosen, gradient, lr)
    state = dense.state_dict()
    assert torch.equal(ours, theirs.detach())
    assert all(torch.equal(state[name], adam.state[theirs][name]) for name in ("step", "exp_avg", "exp_avg_sq"))
