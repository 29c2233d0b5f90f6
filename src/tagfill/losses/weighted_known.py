"""wNE: binary cross-entropy over what is known, where an image with few known labels counts for more.

    L_n = g(p_n) · (1/L) Σ_i ( 1[z=1] ℓ⁺ + 1[z=0] ℓ⁻ )        p_n = share of the image's labels that is known
    g(p) = −4.45 p + 5.45                                     so that g(1) = 1 and g(0.1) is about 5

Without the factor, an image with a tenth of its labels would teach a tenth as much as a complete one. An image
about which nothing is known contributes nothing.

Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels, CVPR 2019; the constants are
those of public code for γ = 1.
"""

from __future__ import annotations

from torch import Tensor

from tagfill.losses.binary import binary
from tagfill.losses.reduction import UNKNOWN, Reduction, reduce
from tagfill.losses.terms import prepare

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
