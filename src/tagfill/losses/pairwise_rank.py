"""PR, pairwise ranking: each observed positive should score a margin of one above every other class.

    L = Σ_{c⁺: z=1} Σ_{c⁻: z≠1} max(0, 1 − f_{c⁺} + f_{c⁻})

The scores are probabilities, so that 1 − f⁺ + f⁻ is never below zero and the hinge never cuts anything off. The double
sum is then linear and needs no loop over pairs: with n⁻ classes that are not observed present, a positive costs

    n⁻ (1 − f⁺) + Σ_{c⁻} f⁻

which stands in the entry of that positive; all other entries are zero.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021, compare with this baseline.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.losses.reduction import POSITIVE, Reduction, reduce
from tagfill.losses.terms import prepare


def pairwise_rank(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean", eps: float = 0.0) -> Tensor:
    """Hinge of observed positives against all other classes, on probabilities.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown; absent and unknown are alike here.
        reduction: see `losses.reduce`.
        eps: for the sake of one form for all losses; there is no logarithm here.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> pairwise_rank(logits, labels, reduction="sum")
        tensor(1.1298)
    """
    logits = prepare(logits, labels)
    positive = labels == POSITIVE
    others = (~positive).sum(dim=1, keepdim=True)
    rivals = logits.sigmoid().masked_fill(positive, 0.0).sum(dim=1, keepdim=True)
    loss = others * torch.sigmoid(-logits) + rivals
    return reduce(loss.masked_fill(~positive, 0.0), labels, reduction)
