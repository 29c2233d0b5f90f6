"""What all losses share: the two terms of binary cross-entropy, and the reductions to one number.

    ℓ⁺(g) = softplus(−g) = −log σ(g)             ℓ⁻(g) = softplus(g) = −log(1−σ(g))
    H(g; b) = b ℓ⁺(g) + (1−b) ℓ⁻(g)

They are exact and finite for any finite logit. With eps > 0 they become −log(σ(±g) + eps), the form of the code of Cole
et al. (CVPR 2021): slightly below zero near certainty, and flat at −log eps (11.51 for 1e-5) where the model is certain
and wrong, so that the gradient vanishes there.

The reduction changes the effective learning rate, so all that the sources use are available:

    mean       sum over all entries / (B·L), masked ones counted too     Cole et al., Large Loss, BoostLU, EN
    sum        sum over all entries                                      ASL, CSL, Hill, SPLC
    batchmean  sum over the entries of an image, mean over images        Soft Exposure
    known      sum over all entries / number of known entries            ignore-BCE of the SST family
    none       the entries themselves

A loss of maps, B×L×G×G, has G·G entries for each label.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tagfill.labels import UNKNOWN

Reduction = Literal["mean", "sum", "batchmean", "known", "none"]


def prepare(logits: Tensor, labels: Tensor) -> Tensor:
    """Check shapes, and convert the logits to float32, or keep them in float64.

    Args:
        logits: B×L, or B×L×G×G for a loss of maps.
        labels: B×L.

    Raises:
        ValueError: if the two disagree on B or L.

    Example:
        >>> prepare(torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3)).dtype
        torch.float32
    """
    if logits.shape[:2] != labels.shape:
        raise ValueError(
            f"The logits are {shape_of(logits)} and the labels {shape_of(labels)}; both need one row per image "
            "and one column per class."
        )
    return to_float(logits)


def to_float(values: Tensor) -> Tensor:
    """Float32, unless the values are float64 already.

    Example:
        >>> to_float(torch.zeros(1, dtype=torch.bfloat16)).dtype, to_float(torch.zeros(1).double()).dtype
        (torch.float32, torch.float64)
    """
    return values if values.dtype == torch.float64 else values.float()


def positive_term(logits: Tensor, eps: float = 0.0) -> Tensor:
    """ℓ⁺, the loss of a present class.

    Example:
        >>> positive_term(torch.tensor([-1e4, 0.0])).tolist()
        [10000.0, 0.6931471824645996]
    """
    return -F.logsigmoid(logits) if eps == 0 else -torch.log(torch.sigmoid(logits) + eps)


def negative_term(logits: Tensor, eps: float = 0.0) -> Tensor:
    """ℓ⁻, the loss of an absent class.

    Example:
        >>> negative_term(torch.tensor([0.0, 1e4])).tolist()
        [0.6931471824645996, 10000.0]
    """
    return positive_term(-logits, eps)


def cross_entropy(logits: Tensor, target: Tensor, eps: float = 0.0) -> Tensor:
    """H(g; b), entry by entry, for hard or soft targets b in [0, 1].

    Example:
        >>> cross_entropy(torch.tensor([2.0, 2.0]), torch.tensor([1.0, 0.5]))
        tensor([0.1269, 1.1269])
    """
    return target * positive_term(logits, eps) + (1 - target) * negative_term(logits, eps)


def hard_cross_entropy(logits: Tensor, present: Tensor, eps: float = 0.0) -> Tensor:
    """H(g; b) for targets of 0 and 1 only: the same numbers as `cross_entropy` with half the operations.

    Args:
        logits: B×L.
        present: B×L bool, where the target is 1.
        eps: added to probabilities inside logarithms.

    Example:
        >>> hard_cross_entropy(torch.tensor([2.0, 2.0]), torch.tensor([True, False]))
        tensor([0.1269, 2.1269])
    """
    sign = torch.where(present, 1.0, -1.0).to(logits.dtype)
    return positive_term(logits * sign, eps)


def shape_of(tensor: Tensor) -> str:
    """A shape as text.

    Example:
        >>> shape_of(torch.zeros(2, 3))
        '2×3'
    """
    return "×".join(map(str, tensor.shape)) or "a scalar"


def reduce(loss: Tensor, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Reduce the loss of each entry to a scalar; finite also for a batch without images or without known labels.

    Args:
        loss: B×L or B×L×G×G.
        labels: B×L, 1 present, 0 absent, -1 unknown; read by "known" only.
        reduction: one of the names in the table above.

    Returns:
        A scalar, or `loss` itself for "none".

    Raises:
        ValueError: if `reduction` is none of them.

    Example:
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
