"""From one loss an entry to one number, and the three label states that losses tell apart.

The reduction changes the effective learning rate, so each source's own is on offer:

    mean       sum over all entries / (B·L), masked ones counted too     Cole et al., Large Loss, BoostLU, EN
    sum        sum over all entries                                      ASL, CSL, Hill, SPLC
    batchmean  sum over the entries of an image, mean over images        Soft Exposure
    known      sum over all entries / number of known entries            ignore-BCE of the SST family
    none       the entries themselves

A loss of maps, B×L×G×G, has G·G entries for each label.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

POSITIVE = 1
NEGATIVE = 0
UNKNOWN = -1

Reduction = Literal["mean", "sum", "batchmean", "known", "none"]


def reduce(loss: Tensor, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Reduce a loss an entry to a scalar; a batch without images or without known labels gives a finite one.

    Args:
        loss: B×L or B×L×G×G.
        labels: B×L, 1 present, 0 absent, -1 unknown; read by "known" only.
        reduction: one of the names above.

    Returns:
        A scalar, or `loss` itself for "none".

    Raises:
        ValueError: if `reduction` is none of them.

    Example:
        >>> import torch
        >>> loss, labels = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[1, 0], [1, -1]])
        >>> [reduce(loss, labels, name).item() for name in ("mean", "sum", "batchmean", "known")]
        [1.5, 6.0, 3.0, 2.0]
    """
    if reduction == "none":
        return loss
    total = loss.sum()
    if reduction == "sum":
        return total
    if reduction == "mean":
        return total / max(loss.numel(), 1)
    if reduction == "batchmean":
        return total / max(len(loss), 1)
    if reduction == "known":
        entries_per_label = loss.numel() // max(labels.numel(), 1)
        return total / ((labels != UNKNOWN).sum() * entries_per_label).clamp(min=1)
    raise ValueError(f"There is no reduction '{reduction}'. Known: mean, sum, batchmean, known, none.")
