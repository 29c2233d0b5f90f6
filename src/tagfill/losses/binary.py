"""Binary cross-entropy over what is known; unknown labels are left out.

    BCE     1[z=1] ℓ⁺ + 1[z=0] ℓ⁻
    BCE-LS  1[z=1] ((1−ε) ℓ⁺ + ε ℓ⁻) + 1[z=0] ((1−ε) ℓ⁻ + ε ℓ⁺),   ε = `smoothing`

On complete labels this is the oracle that partial-label methods are measured against. On partial labels it is
the baseline called ignore, IU or NE (negatives and positives that are explicit), which has nothing to learn from
when only positives are observed: predicting every class everywhere is then its minimum.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021, name the forms compared here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.losses.reduction import POSITIVE, UNKNOWN, Reduction, reduce
from tagfill.losses.terms import cross_entropy, prepare


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
