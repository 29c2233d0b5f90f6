"""GR: an unknown label is both present and absent, with a share and a weight that follow from the prediction.

    z = 1     −log f
    z = −1    v(f) · ( k(f)·(1 − f^q₂)/q₂ + (1 − k(f))·(1 − (1−f)^q₃)/q₃ )

    k(f) = σ(w·f + b)                      share of unknown labels with this prediction that are present
    v(f) = exp(−(f − μ)² / (2σ²))          weight

(1 − x^q)/q is the generalized cross-entropy: −log x for q → 0, and 1 − x, which tolerates wrong labels, for q = 1. k is
a soft pseudo-label, and v gives little weight to predictions far from μ, easy negatives at first and likely wrong ones
later. Both are treated as constants: they have no gradient. A known absent label costs −log(1 − f); the paper has none.

Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss, IJCAI 2024.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.losses.base import Reduction, negative_term, positive_term, prepare, reduce


def generalized_robust(
    logits: Tensor,
    labels: Tensor,
    *,
    slope: float = 2.0,
    offset: float = -2.0,
    center: float = 0.8,
    spread: float = 0.5,
    q_present: float = 0.01,
    q_absent: float = 1.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Cross-entropy of known labels, and a weighted mixture of two robust losses of unknown ones.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        slope: w of k.
        offset: b of k.
        center: μ of v.
        spread: σ of v.
        q_present: q₂, above 0 and at most 1.
        q_absent: q₃, above 0 and at most 1.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Raises:
        ValueError: if a q or the spread is not positive, or a q is above 1.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> generalized_robust(logits, labels)
        tensor(0.3101)
    """
    if not (0 < q_present <= 1 and 0 < q_absent <= 1 and spread > 0):
        raise ValueError(
            f"q_present {q_present} and q_absent {q_absent} must be above 0 and at most 1, and spread {spread} above 0."
        )
    logits = prepare(logits, labels)
    f = logits.detach().sigmoid()
    share = torch.sigmoid(slope * f + offset)
    weight = torch.exp(-((f - center) ** 2) / (2 * spread**2))
    unknown = weight * (share * _robust(logits, q_present) + (1 - share) * _robust(-logits, q_absent))
    loss = torch.where(labels == NEGATIVE, negative_term(logits, eps), unknown)
    return reduce(torch.where(labels == POSITIVE, positive_term(logits, eps), loss), labels, reduction)


def _robust(logits: Tensor, q: float) -> Tensor:
    """(1 − σ(g)^q)/q, finite for any logit.

    >>> _robust(torch.tensor([-1e4, 0.0, 1e4]), 1.0).tolist()
    [1.0, 0.5, -0.0]
    """
    return -torch.expm1(-q * positive_term(logits)) / q
