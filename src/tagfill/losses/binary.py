"""Binary cross-entropy over what is known; unknown labels are left out.

    BCE     1[z=1] ℓ⁺ + 1[z=0] ℓ⁻
    BCE-LS  1[z=1] ((1−ε) ℓ⁺ + ε ℓ⁻) + 1[z=0] ((1−ε) ℓ⁻ + ε ℓ⁺),   ε = `smoothing`

On complete labels this is the oracle that partial-label methods are measured against. On partial labels it is
the baseline called ignore, IU or NE (negatives and positives that are explicit), which has nothing to learn from
when only positives are observed: predicting every class everywhere is then its minimum.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021, name the forms compared here.


wNE: binary cross-entropy over what is known, where an image with few known labels counts for more.

    L_n = g(p_n) · (1/L) Σ_i ( 1[z=1] ℓ⁺ + 1[z=0] ℓ⁻ )        p_n = share of the image's labels that is known
    g(p) = −4.45 p + 5.45                                     so that g(1) = 1 and g(0.1) is about 5

Without the factor, an image with a tenth of its labels would teach a tenth as much as a complete one. An image
about which nothing is known contributes nothing.

Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels, CVPR 2019; the constants are
those of public code for γ = 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, cross_entropy, prepare, reduce


def binary(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, reduction: Reduction = "mean", eps: float = 0.0
) -> Tensor:
    """Binary cross-entropy of the known labels, with optional label smoothing.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown; unknown entries contribute nothing.
        smoothing: ε, the target of an absent class; 1−ε is that of a present one (0.1 in Cole et al.).
        reduction: see `losses.reduce`; "mean" divides by B·L, "known" by the number of known entries.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5]])
        >>> binary(logits, torch.tensor([[1, 0, 0]]))
        tensor(0.4714)
    """
    logits = prepare(logits, labels)
    target = torch.full_like(logits, smoothing).masked_fill(labels == POSITIVE, 1 - smoothing)
    loss = cross_entropy(logits, target, eps).masked_fill(labels == UNKNOWN, 0.0)
    return reduce(loss, labels, reduction)


def ignore_unknown(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean", eps: float = 0.0) -> Tensor:
    """The baseline that learns from explicit positives and negatives only: `binary`, under its published role.

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


SLOPE, OFFSET = -4.45, 5.45


def weighted_known(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean", eps: float = 0.0) -> Tensor:
    """Binary cross-entropy of the known labels, weighted by how few of an image's labels they are.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        reduction: see `losses.reduce`; "mean" is 1/L an image and the mean over images, as published.
        eps: added to probabilities inside logarithms.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, -1.0, 0.5]])
        >>> weighted_known(logits, torch.tensor([[1, 0, -1]]))
        tensor(0.3644)
    """
    logits = prepare(logits, labels)
    share = (labels != UNKNOWN).to(logits.dtype).mean(dim=1, keepdim=True)
    weight = SLOPE * share + OFFSET
    return reduce(weight * binary(logits, labels, reduction="none", eps=eps), labels, reduction)
