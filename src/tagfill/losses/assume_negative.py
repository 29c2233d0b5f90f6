"""Assume-negative family: every unknown label is treated as absent.

    AN     1[z=1] ℓ⁺ + 1[z≠1] ℓ⁻
    AN-LS  1[z=1] ((1−ε) ℓ⁺ + ε ℓ⁻) + 1[z≠1] ((1−ε) ℓ⁻ + ε ℓ⁺),   ε = `smoothing`
    WAN    1[z=1] ℓ⁺ + γ 1[z≠1] ℓ⁻,                                γ = `negative_weight`, 1/(L−1) as published
    PR     Σ_{c⁺: z=1} Σ_{c⁻: z≠1} max(0, 1 − f_{c⁺} + f_{c⁻})

The targets of AN-LS are 1−ε and ε, not 1−ε/2 and ε/2.

PR, pairwise ranking, asks each observed positive to score a margin of one above every other class. The scores are
probabilities, so that 1 − f⁺ + f⁻ is never below zero and the hinge never cuts anything off. The double sum is then
linear and needs no loop over pairs: with n⁻ classes that are not observed present, the entry of a positive is

    n⁻ (1 − f⁺) + Σ_{c⁻} f⁻

and all other entries are zero.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import POSITIVE
from tagfill.losses.base import Reduction, cross_entropy, hard_cross_entropy, prepare, reduce


def assume_negative(
    logits: Tensor,
    labels: Tensor,
    *,
    smoothing: float = 0.0,
    negative_weight: float = 1.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Binary cross-entropy that treats unknown labels as absent.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        smoothing: ε, the target of absent and unknown labels (0.1 in AN-LS).
        negative_weight: γ, the weight of absent and unknown labels (1/(L−1) in WAN).
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
    if smoothing == 0:
        loss = hard_cross_entropy(logits, positive, eps)
    else:
        target = torch.full_like(logits, smoothing).masked_fill(positive, 1 - smoothing)
        loss = cross_entropy(logits, target, eps)
    if negative_weight != 1:
        loss = torch.full_like(logits, negative_weight).masked_fill(positive, 1.0) * loss
    return reduce(loss, labels, reduction)


def pairwise_rank(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean", eps: float = 0.0) -> Tensor:
    """Hinge of observed positives against all other classes, on probabilities.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown; absent and unknown are treated alike.
        reduction: see `losses.reduce`.
        eps: unused; every loss has it, but this one has no logarithm.

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
