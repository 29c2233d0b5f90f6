"""Binary cross-entropy of the known labels; unknown labels are ignored.

    BCE     1[z=1] ℓ⁺ + 1[z=0] ℓ⁻
    BCE-LS  1[z=1] ((1−ε) ℓ⁺ + ε ℓ⁻) + 1[z=0] ((1−ε) ℓ⁻ + ε ℓ⁺),   ε = `smoothing`
    wNE     g(p_n) · BCE of image n,   g(p) = −4.45 p + 5.45,      p_n = share of the image's labels that is known

On complete labels BCE is the oracle that partial-label methods are measured against. On partial labels it is the
baseline called ignore, IU or NE (explicit negatives and positives), which cannot learn from positives alone: its
minimum is then to predict every class everywhere.

Without its factor, wNE would learn a tenth as much from an image with a tenth of its labels as from a complete one.
g(1) = 1 and g(0.1) is about 5. An image without known labels contributes nothing.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021, name the first forms. wNE: Durand et al.,
Learning a Deep ConvNet for Multi-label Classification with Partial Labels, CVPR 2019; the constants are those of public
code for γ = 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, cross_entropy, hard_cross_entropy, prepare, reduce

SLOPE, OFFSET = -4.45, 5.45  # of g


def binary(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, reduction: Reduction = "mean", eps: float = 0.0
) -> Tensor:
    """Binary cross-entropy of the known labels, with optional label smoothing.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown; unknown entries are ignored.
        smoothing: ε, the target of an absent class, and 1−ε of a present one (0.1 in Cole et al.).
        reduction: see `losses.reduce`; "mean" divides by B·L, "known" by the number of known entries.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5]])
        >>> binary(logits, torch.tensor([[1, 0, 0]]))
        tensor(0.4714)
    """
    logits = prepare(logits, labels)
    positive = labels == POSITIVE
    if smoothing == 0:
        loss = hard_cross_entropy(logits, positive, eps)
    else:
        target = torch.full_like(logits, smoothing).masked_fill(positive, 1 - smoothing)
        loss = cross_entropy(logits, target, eps)
    return reduce(loss.masked_fill(labels == UNKNOWN, 0.0), labels, reduction)


def ignore_unknown(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean", eps: float = 0.0) -> Tensor:
    """The baseline that learns from explicit positives and negatives only: `binary` without options.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        reduction: see `losses.reduce`; Soft Exposure has "batchmean", the SST family "known".
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5]])
        >>> ignore_unknown(logits, torch.tensor([[1, 0, -1]]), reduction="known")
        tensor(0.2201)
    """
    return binary(logits, labels, reduction=reduction, eps=eps)


def weighted_known(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean", eps: float = 0.0) -> Tensor:
    """Binary cross-entropy of the known labels, with more weight for images with few known labels.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        reduction: see `losses.reduce`; "mean" is Durand et al.'s, 1/L per image and the mean over images. Soft
            Exposure has "batchmean", as for its other losses.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5]])
        >>> weighted_known(logits, torch.tensor([[1, 0, -1]]))
        tensor(0.3644)
    """
    logits = prepare(logits, labels)
    share = (labels != UNKNOWN).to(logits.dtype).mean(dim=1, keepdim=True)
    weight = SLOPE * share + OFFSET
    return reduce(weight * binary(logits, labels, reduction="none", eps=eps), labels, reduction)
