"""Soft positives: a share of each unknown label counts as present; the rest is undecided, and weakly absent.

    z = 1     ℓ⁺(g)
    z = 0     ℓ⁻(g)
    z = −1    β·t·ℓ⁺(g) + (1 − t)·(γ·ℓ⁻(g) − α·H(f))

t is the share, such as a probability that another tagger gives. With t = 0 everywhere and γ = 0 it is EM
(`losses.entropy_maximization`), with α = 0 and γ = 1 it is AN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.losses.base import Reduction, negative_term, positive_term, prepare, reduce, shape_of


def soft_positive(
    logits: Tensor,
    labels: Tensor,
    share: Tensor,
    *,
    weight: float = 0.7,
    negative_weight: float = 0.1,
    alpha: float = 0.1,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Cross-entropy of known labels, and of a share of the unknown ones as present; the rest is weakly absent.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        share: B×L, t in [0, 1]; treated as constants.
        weight: β, of the share that counts as present.
        negative_weight: γ, of the rest as absent.
        alpha: α, the weight of the entropy.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Raises:
        ValueError: if shapes disagree.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> soft_positive(logits, labels, torch.tensor([[0.0, 0.9, 0.0]]))
        tensor(0.3276)
    """
    logits = prepare(logits, labels)
    if share.shape != labels.shape:
        raise ValueError(f"The labels are {shape_of(labels)} and the shares {shape_of(share)}; they must agree.")
    t = share.detach().to(logits.dtype)
    present, absent = positive_term(logits, eps), negative_term(logits, eps)
    entropy = logits.sigmoid() * present + torch.sigmoid(-logits) * absent
    unknown = weight * t * present + (1 - t) * (negative_weight * absent - alpha * entropy)
    loss = torch.where(labels == NEGATIVE, absent, unknown)
    return reduce(torch.where(labels == POSITIVE, present, loss), labels, reduction)
