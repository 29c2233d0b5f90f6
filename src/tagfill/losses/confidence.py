"""Confident predictions used as labels: SPLC, and the pseudo-labels of FixMatch.

**SPLC** treats an unknown label with a confident prediction as present, from the second epoch on:

    s = g − m where z=1, else g                    m = `margin`, which makes positives harder
    t = 1 where z=1, or where z is unknown and σ(s) > τ; else 0
    L = (1−p_t)^γ H(s; t),   p_t = σ(s) where t=1, else 1 − σ(s)

The correction lasts for one step and is not stored, and a corrected entry has no margin. In the first epoch nothing is
corrected. Explicit negatives are never corrected; the released code has no explicit negatives and would correct them.
The focal weight has a gradient, as there.

Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels, 2021.

**FixMatch** for several labels: what the model predicts confidently in a weak view, a strong view of the same image
should predict too.

    p   = σ(g_weak), held constant
    m⁺  = 1[p ≥ τ⁺],  m⁻ = 1[p ≤ τ⁻]                over unknown labels only
    L_u = Σ (m⁺ ℓ⁺(g_strong) + m⁻ ℓ⁻(g_strong)) / max(1, Σ (m⁺ + m⁻))

`pseudo_labels` computes m; L_u is `binary(strong, pseudo_labels, reduction="known")`.

Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence, NeurIPS 2020, for one label
per image; the thresholds for positives and negatives follow Rizve et al., In Defense of Pseudo-Labeling, ICLR 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, cross_entropy, prepare, reduce


def splc(
    logits: Tensor,
    labels: Tensor,
    *,
    correct: bool = True,
    threshold: float = 0.6,
    margin: float = 1.0,
    gamma: float = 2.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Focal cross-entropy with a margin on positives; confident unknowns are treated as present.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        correct: treat confident unknowns as present; False in the first epoch.
        threshold: τ, the probability above which an unknown is confident (0.65 with 75 % of COCO's labels left).
        margin: m, subtracted from the logits of observed positives.
        gamma: γ, the focusing strength.
        reduction: see `losses.reduce`; "sum" as published.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> splc(logits, labels, correct=False, reduction="sum")
        tensor(0.4227)
        >>> splc(logits, labels, reduction="sum")
        tensor(0.1129)
    """
    logits = prepare(logits, labels)
    observed = labels == POSITIVE
    present = observed | confident_unknowns(logits, labels, threshold=threshold) if correct else observed
    shifted = logits - margin * observed
    target = present.to(logits.dtype)
    difficulty = (shifted * (1 - 2 * target)).sigmoid()  # 1 − p_t
    return reduce(difficulty.pow(gamma) * cross_entropy(shifted, target, eps), labels, reduction)


def confident_unknowns(logits: Tensor, labels: Tensor, *, threshold: float = 0.6) -> Tensor:
    """The unknown labels with a probability above a threshold.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        threshold: τ.

    Returns:
        B×L bool.

    Example:
        >>> confident_unknowns(torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]]))
        tensor([[False, False,  True]])
    """
    return (labels == UNKNOWN) & (prepare(logits.detach(), labels).sigmoid() > threshold)


def pseudo_labels(weak: Tensor, labels: Tensor, *, positive: float = 0.95, negative: float = 0.05) -> Tensor:
    """Confident predictions of a weak view for unknown labels, as labels for a strong view.

    Args:
        weak: B×L logits.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        positive: τ⁺, the least probability of a pseudo-positive.
        negative: τ⁻, the largest probability of a pseudo-negative.

    Returns:
        B×L int8: 1 and 0 for pseudo-labels, -1 for known labels and for predictions that are not confident.

    Example:
        >>> pseudo_labels(torch.tensor([[4.0, -4.0, 0.0, 4.0]]), torch.tensor([[-1, -1, -1, 0]]))
        tensor([[ 1,  0, -1, -1]], dtype=torch.int8)
    """
    probability = prepare(weak, labels).detach().sigmoid()
    found = torch.full_like(labels, UNKNOWN, dtype=torch.int8)
    found.masked_fill_(probability <= negative, NEGATIVE).masked_fill_(probability >= positive, POSITIVE)
    return found.masked_fill_(labels != UNKNOWN, UNKNOWN)
