"""Hill: negatives are penalised the less, the surer the model is that they are missed positives.

    present  (1−p)^γ (−log p),  p = σ(g − margin)            focal, with a margin on the logit
    absent   (λ − f) f²                                      absent: everything not observed present

The weight λ − f, with λ = 1.5, turns the squared error into a hill: its slope 2λf − 3f² grows up to f = λ/3 and is
zero again at f = 1, so that an unknown label which the model is sure of is hardly pushed down. Reduction is "sum" as
published, and the gradient flows through all factors.

Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels, 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.losses.reduction import POSITIVE, Reduction, reduce
from tagfill.losses.terms import positive_term, prepare


def hill(
    logits: Tensor,
    labels: Tensor,
    *,
    peak: float = 1.5,
    margin: float = 1.0,
    gamma: float = 2.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Focal loss with a margin for positives, a re-weighted squared error for all else; unknown is read as absent.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        peak: λ of the negatives.
        margin: taken off the logit of a positive.
        gamma: focal power of the positives.
        reduction: see `losses.reduce`; "sum" as published.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> hill(logits, labels, reduction="sum")
        tensor(0.4517)
    """
    logits = prepare(logits, labels)
    shifted = logits - margin
    tiny = torch.finfo(logits.dtype).tiny  # keeps the slope of a power below one finite
    present = torch.sigmoid(-shifted).clamp(min=tiny) ** gamma * positive_term(shifted, eps)
    probability = logits.sigmoid()
    absent = (peak - probability) * probability.square()
    return reduce(torch.where(labels == POSITIVE, present, absent), labels, reduction)
