"""EN, and consistency with earlier predictions: the losses of Verelst et al.

**EN**, expected negative, ignores the likeliest unannotated positives and treats all other unknowns as absent:

    EN  1[z=1] ℓ⁺ + 1[ẑ=0] ℓ⁻                ẑ = `expected_positives`, the highest-scoring images of each class
    EP  1[z=1 or ẑ=1] ℓ⁺ + 1[ẑ=0] ℓ⁻         the ablation that treats ẑ as present

An explicit negative has ẑ=0 whatever the ranking says. An observed positive can fall out of its class's ẑ, and the
printed formula then both rewards and penalizes it; here it is never penalized unless `literal` asks for it.

**Consistency** keeps a prediction close to the running mean of earlier predictions of the same image:

    CL   D(f_n, s_n)         f = σ(g), B×L; s the running scores, before this visit's update
    SCL  D(F_n, T(H_n))      F = σ(S), B×L×G×G; H the running heatmaps, brought into this view

    l1   D(p, t) = |p − t|                             as published
    l2   D(p, t) = (p − t)²
    jsd  D(p, t) = H(m) − ½ H(p) − ½ H(t),  m = ½ (p + t),  H the binary entropy; in [0, log 2]

The target is a constant. The paper writes a norm, a sum, but the sum over 80 × 14 × 14 cells would dominate a
classification loss that is a mean: the default is the mean over all entries.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.losses.base import Reduction, cross_entropy, negative_term, positive_term, prepare, reduce, shape_of

Distance = Literal["l1", "l2", "jsd"]


def expected_negative(
    logits: Tensor,
    labels: Tensor,
    expected_positives: Tensor,
    *,
    also_positive: bool = False,
    literal: bool = False,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Binary cross-entropy that does not penalize expected positives.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        expected_positives: B×L bool, ẑ.
        also_positive: give expected positives the positive term too (EP).
        literal: penalize an observed positive outside ẑ, as printed.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> expected_negative(logits, labels, torch.tensor([[True, False, True]]))
        tensor(0.1467)
    """
    logits = prepare(logits, labels)
    if expected_positives.shape != labels.shape:
        raise ValueError(
            f"The labels are {shape_of(labels)} and the expected positives {shape_of(expected_positives)}; "
            "they must agree."
        )
    observed = labels == POSITIVE
    expected = expected_positives.bool() & (labels != NEGATIVE)
    rewarded = observed | expected if also_positive else observed
    penalized = ~expected if literal else ~(expected | observed)
    loss = rewarded * positive_term(logits, eps) + penalized * negative_term(logits, eps)
    return reduce(loss, labels, reduction)


def consistency(
    logits: Tensor,
    labels: Tensor,
    target: Tensor,
    *,
    distance: Distance = "l1",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Distance of predictions to earlier ones, entry by entry.

    Args:
        logits: B×L (CL), or B×L×G×G class maps (SCL).
        labels: B×L; used only for the count of reduction="known".
        target: probabilities, of the shape of `logits`; treated as constants.
        distance: "l1", "l2" or "jsd".
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms, which only "jsd" has.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, -1]])
        >>> consistency(logits, labels, torch.tensor([[1.0, 0.0]]))
        tensor(0.1941)
    """
    logits = prepare(logits, labels)
    if target.shape != logits.shape:
        raise ValueError(f"The logits are {shape_of(logits)} and the target {shape_of(target)}; they must agree.")
    target = target.detach().to(logits.dtype)
    if distance == "l1":
        loss = (logits.sigmoid() - target).abs()
    elif distance == "l2":
        loss = (logits.sigmoid() - target).square()
    elif distance == "jsd":
        loss = jensen_shannon(logits, target, eps)
    else:
        raise ValueError(f"There is no distance '{distance}'. Known: l1, l2, jsd.")
    return reduce(loss, labels, reduction)


def jensen_shannon(logits: Tensor, target: Tensor, eps: float = 0.0) -> Tensor:
    """Jensen–Shannon divergence of two binary distributions; finite, with finite gradients, at any logit.

    Args:
        logits: of the first, any shape.
        target: probabilities of the second, of the same shape.
        eps: added to probabilities inside logarithms.

    Example:
        >>> jensen_shannon(torch.tensor([-1e4, 0.0]), torch.tensor([1.0, 0.5]))
        tensor([0.6931, 0.0000])
    """
    predicted = logits.sigmoid()
    entropy = cross_entropy(logits, predicted, eps)
    middle = (predicted + target) / 2
    rest = (torch.sigmoid(-logits) + (1 - target)) / 2
    return (
        _entropy_term(middle, eps)
        + _entropy_term(rest, eps)
        - (entropy + _entropy_term(target, eps) + _entropy_term(1 - target, eps)) / 2
    )


def _entropy_term(probability: Tensor, eps: float) -> Tensor:
    """−p log(p + eps); the clamp gives p = 0 the value 0 and a finite slope."""
    return -probability * (probability + eps).clamp(min=torch.finfo(probability.dtype).tiny).log()
