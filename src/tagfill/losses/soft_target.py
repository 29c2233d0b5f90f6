"""Soft targets for unknown labels, each with a weight; what the weight leaves is entropy maximization.

    z = 1     ℓ⁺(g)
    z = 0     ℓ⁻(g)
    z = −1    τ·(t·ℓ⁺(g) + (1−t)·ℓ⁻(g)) − (1 − τ)·α·H(f)

t is the target of a label and τ how far it is trusted. With τ = 1 a target counts as much as a known label; with τ = 0
the label stays undecided, as in EM (`losses.entropy_maximization`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.losses.base import Reduction, cross_entropy, negative_term, positive_term, prepare, reduce, shape_of


def soft_target(
    logits: Tensor,
    labels: Tensor,
    targets: Tensor,
    trust: Tensor,
    *,
    alpha: float = 0.1,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Cross-entropy of known labels and of trusted targets, minus the entropy of the rest.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        targets: B×L, t in [0, 1]; treated as constants, and not read where trust is 0.
        trust: B×L, τ in [0, 1].
        alpha: α, the weight of the entropy.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Raises:
        ValueError: if shapes disagree.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> soft_target(logits, labels, torch.tensor([[0.0, 0.9, 0.2]]), torch.tensor([[1.0, 1.0, 0.0]]))
        tensor(0.4246)
    """
    logits = prepare(logits, labels)
    for name, values in (("targets", targets), ("trust", trust)):
        if values.shape != labels.shape:
            raise ValueError(f"The labels are {shape_of(labels)} and the {name} {shape_of(values)}; they must agree.")
    weight = trust.detach().to(logits.dtype)
    target = torch.where(weight > 0, targets.detach().to(logits.dtype), torch.zeros_like(weight))
    entropy = logits.sigmoid() * positive_term(logits, eps) + torch.sigmoid(-logits) * negative_term(logits, eps)
    unknown = weight * cross_entropy(logits, target, eps) - (1 - weight) * alpha * entropy
    loss = torch.where(labels == NEGATIVE, negative_term(logits, eps), unknown)
    return reduce(torch.where(labels == POSITIVE, positive_term(logits, eps), loss), labels, reduction)
