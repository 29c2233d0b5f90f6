"""SPLC: an unknown label that the model is sure about counts as present, from the second epoch on.

    s = g − m where z=1, else g                    m = `margin`, which makes positives harder
    t = 1 where z=1, or where z is unknown and σ(s) > τ; else 0
    L = (1−p_t)^γ H(s; t),   p_t = σ(s) where t=1, else 1 − σ(s)

The correction lasts for this step and is not stored, and a corrected entry has no margin. In the first epoch nothing is
corrected. Explicit negatives are never corrected; the released code knows no explicit negatives and would correct
them. The focal weight has a gradient, as there.

Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels, 2021.
"""

from __future__ import annotations

from torch import Tensor

from tagfill.labels import POSITIVE, UNKNOWN
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
    """Focal cross-entropy with a margin on positives, and confident unknowns read as present.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        correct: whether confident unknowns are read as present; not yet in the first epoch.
        threshold: τ, the probability above which an unknown is one (0.65 with 75 % of COCO's labels left).
        margin: m, taken off the logits of observed positives.
        gamma: γ, the focusing strength.
        reduction: see `losses.reduce`; "sum" as published.
        eps: added to probabilities inside logarithms.

    Example:
        >>> import torch
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> splc(logits, labels, correct=False, reduction="sum")
        tensor(0.4227)
        >>> splc(logits, labels, reduction="sum")
        tensor(0.1129)
    """
    logits = prepare(logits, labels)
    observed = labels == POSITIVE
    present = observed | confident(logits, labels, threshold=threshold) if correct else observed
    shifted = logits - margin * observed
    target = present.to(logits.dtype)
    surprise = (shifted * (1 - 2 * target)).sigmoid()  # 1 − p_t
    return reduce(surprise.pow(gamma) * cross_entropy(shifted, target, eps), labels, reduction)


def confident(logits: Tensor, labels: Tensor, *, threshold: float = 0.6) -> Tensor:
    """The unknown labels with a probability above a threshold.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        threshold: τ.

    Returns:
        B×L bool.

    Example:
        >>> import torch
        >>> confident(torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]]))
        tensor([[False, False,  True]])
    """
    return (labels == UNKNOWN) & (prepare(logits.detach(), labels).sigmoid() > threshold)
