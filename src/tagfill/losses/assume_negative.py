"""Assume-negative family: every unknown label is read as absent.

    AN     1[z=1] ℓ⁺ + 1[z≠1] ℓ⁻
    AN-LS  1[z=1] ((1−ε) ℓ⁺ + ε ℓ⁻) + 1[z≠1] ((1−ε) ℓ⁻ + ε ℓ⁺),   ε = `smoothing`
    WAN    1[z=1] ℓ⁺ + γ 1[z≠1] ℓ⁻,                                γ = `negative_weight`, 1/(L−1) as published

The targets of AN-LS are 1−ε and ε, not 1−ε/2 and ε/2.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.losses.reduction import POSITIVE, Reduction, reduce
from tagfill.losses.terms import cross_entropy, prepare


def assume_negative(
    logits: Tensor,
    labels: Tensor,
    *,
    smoothing: float = 0.0,
    negative_weight: float = 1.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Binary cross-entropy with unknown read as absent.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        smoothing: ε, the target of what is not observed present (0.1 in AN-LS).
        negative_weight: γ, the weight of what is not observed present (1/(L−1) in WAN).
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> assume_negative(logits, labels)
        tensor(0.4714)
        >>> assume_negative(logits, labels, negative_weight=1 / 2)
        tensor(0.2569)
    """
    logits = prepare(logits, labels)
    positive = labels == POSITIVE
    target = torch.full_like(logits, smoothing).masked_fill(positive, 1 - smoothing)
    weight = torch.full_like(logits, negative_weight).masked_fill(positive, 1.0)
    return reduce(weight * cross_entropy(logits, target, eps), labels, reduction)
