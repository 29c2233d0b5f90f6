"""FixMatch for several labels: what a weak view is sure of, a strong view of the same image must say too.

    p   = σ(g_weak), held constant
    m⁺  = 1[p ≥ τ⁺],  m⁻ = 1[p ≤ τ⁻]                over unknown labels only
    L_u = Σ (m⁺ ℓ⁺(g_strong) + m⁻ ℓ⁻(g_strong)) / max(1, Σ (m⁺ + m⁻))

Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence, NeurIPS 2020, for one label
an image; the thresholds for positives and negatives follow Rizve et al., In Defense of Pseudo-Labeling, ICLR 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.losses.reduction import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.losses.terms import prepare


def pseudo_labels(weak: Tensor, labels: Tensor, *, positive: float = 0.95, negative: float = 0.05) -> Tensor:
    """What a weak view is sure of among the unknown labels; train a strong view with `binary(..., reduction="known")`.

    Args:
        weak: B×L logits.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        positive: τ⁺, the least probability of a pseudo-positive.
        negative: τ⁻, the largest probability of a pseudo-negative.

    Returns:
        B×L int8: 1 and 0 for pseudo-labels, -1 for what is known already or unsure.

    Example:
        >>> pseudo_labels(torch.tensor([[4.0, -4.0, 0.0, 4.0]]), torch.tensor([[-1, -1, -1, 0]]))
        tensor([[ 1,  0, -1, -1]], dtype=torch.int8)
    """
    probability = prepare(weak, labels).detach().sigmoid()
    found = torch.full_like(labels, UNKNOWN, dtype=torch.int8)
    found.masked_fill_(probability <= negative, NEGATIVE).masked_fill_(probability >= positive, POSITIVE)
    return found.masked_fill_(labels != UNKNOWN, UNKNOWN)
