"""ASL and Hill: unknown labels are treated as absent, and some of the negatives count less.

**ASL**, the asymmetric loss, down-weights easy negatives; the focal loss is a special case:

    present  (1−f)^γ₊ · (−log f)
    absent   q^γ₋ · (−log(1−q)),   q = max(f − m, 0)                    absent: everything not observed present

    ASL    γ₊=0, γ₋=4, m=0.05      `gamma_positive`, `gamma_negative`, `margin`; reduction "sum" as published
    focal  γ₊=γ₋=2, m=0            Lin et al., ICCV 2017
    Q2L    γ₊=0, γ₋=2, m=0         1000 × reduction "mean", eps=1e-5: the form of Query2Label, whose text has γ₋=1

The powers are weights: by default no gradient flows through them, as in the published `AsymmetricLoss`. With
`focal_gradient` it does, as in its optimized variant and in the focal loss of Lin et al. Here eps is a floor of the
probabilities inside logarithms and is not added to them, as in the published code (1e-8 for ASL, 1e-5 for Query2Label):
a term is at most −log eps.

Ridnik et al., Asymmetric Loss For Multi-Label Classification, ICCV 2021; Liu et al., Query2Label, 2021.

**Hill** penalizes negatives less, the more confident the model is that they are missed positives:

    present  (1−p)^γ (−log p),  p = σ(g − margin)            focal, with a margin on the logit
    absent   (λ − f) f²                                      absent: everything not observed present

The weight λ − f, with λ = 1.5, turns the squared error into a hill: its slope 2λf − 3f² grows up to f = λ/3 and is zero
again at f = 1, so that an unknown label with a confident prediction is hardly pushed down. Reduction is "sum" as
published, and the gradient flows through all factors.

Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels, 2021.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tagfill.labels import POSITIVE
from tagfill.losses.base import Reduction, negative_term, positive_term, prepare, reduce


def asymmetric(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    margin: float = 0.05,
    focal_gradient: bool = False,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Focal cross-entropy with separate powers for positives and negatives; unknown labels are absent.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        gamma_positive: γ₊ of observed positives.
        gamma_negative: γ₋ of everything else.
        margin: m, probabilities below it cost a negative nothing.
        focal_gradient: let the gradient flow through the powers.
        reduction: see `losses.reduce`; "sum" as published.
        eps: floor of the probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> asymmetric(logits, labels, reduction="sum")
        tensor(0.2187)
        >>> asymmetric(logits, labels, gamma_positive=2, gamma_negative=2, margin=0)
        tensor(0.1340)
    """
    logits = prepare(logits, labels)
    positive = labels == POSITIVE
    present = _focus(torch.sigmoid(-logits), gamma_positive, focal_gradient) * _at_most(positive_term(logits), eps)
    shifted = (logits.sigmoid() - margin).clamp(min=0.0)
    penalty = negative_term(logits) if margin == 0 else -(torch.sigmoid(-logits) + margin).clamp(max=1.0).log()
    absent = _focus(shifted, gamma_negative, focal_gradient) * _at_most(penalty, eps)
    return reduce(torch.where(positive, present, absent), labels, reduction)


def _focus(distance: Tensor, gamma: float, gradient: bool) -> Tensor:
    """distance^γ; with a gradient, clamped above zero, where the slope is infinite for γ < 1."""
    if not gradient:
        return distance.detach() ** gamma
    return distance.clamp(min=torch.finfo(distance.dtype).tiny) ** gamma


def _at_most(term: Tensor, eps: float) -> Tensor:
    """−log max(p, eps), given −log p."""
    return term if eps == 0 else term.clamp(max=-math.log(eps))


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
    """Focal loss with a margin for positives, re-weighted squared error for all others; unknown labels are absent.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        peak: λ of the negatives.
        margin: subtracted from the logit of a positive.
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
