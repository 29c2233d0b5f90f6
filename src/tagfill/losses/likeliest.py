"""The likeliest entries of a row: what CSL leaves out of labels, and CSL-P out of cells."""

from __future__ import annotations

import torch
from torch import Tensor


def likeliest(logits: Tensor, among: Tensor, count: int) -> Tensor:
    """The `count` entries of each row with the largest logits, of those in `among`; of equal ones the first.

    Args:
        logits: …×n.
        among: …×n bool.
        count: how many of a row; fewer where there are fewer.

    Returns:
        …×n bool.

    Example:
        >>> likeliest(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([False, True, True]), 1)
        tensor([False, False,  True])
    """
    ranked = logits.detach().masked_fill(~among, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    found = torch.zeros_like(among).scatter_(-1, ranked[..., :count], True)
    return found & among
