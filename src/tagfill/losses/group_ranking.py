"""Group-wise ranking: the present classes of an image, as a group, score above its absent classes.

    ZLPR     log(1 + Σ_n e^(g_n)) + log(1 + Σ_p e^(−g_p))          p, n: present and absent classes of an image
           = log(1 + Σ_n e^(g_n) + Σ_p e^(−g_p) + Σ_np e^(g_n−g_p))

    two-way  mean over images of D + mean over classes of D        p, n: classes of an image, or images of a class
             D = softplus(T₋ log Σ_n e^(g_n/T₋) + T₊ log Σ_p e^(−g_p/T₊))

A log-sum-exp is close to a maximum, so the gradient goes to the absent classes that score highest and the present ones
that score lowest, whatever the number of easy ones. ZLPR compares every pair of classes, and all of them with zero.
Two-way loss has no such zero; it also compares the images of a batch within each class, as average precision does.

Unknown labels belong to no group, or to the absent ones. A group comparison needs both groups: where one is empty, a
two-way comparison is left out, and ZLPR compares the other group with zero.

ZLPR: Su, Zhu, Murtadha, Pan, Wen and Liu, ZLPR: A Novel Loss for Multi-label Classification, arXiv 2208.02955; the
equation as in Su's article https://kexue.fm/archives/7359.
Two-way: Kobayashi, Two-way Multi-Label Loss, CVPR 2023; the equation as computed by the released code.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.losses.base import Reduction, negative_term, prepare, reduce

UnknownAs = Literal["ignored", "absent"]
_LOWEST = -1e9  # what stands for log 0: finite, so that gradients are


def zlpr(
    logits: Tensor,
    labels: Tensor,
    *,
    unknown_as: UnknownAs = "ignored",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Present classes of an image above zero and above its absent ones, which are below zero.

    The published loss is `reduction="batchmean"`. Entry by entry, a group's loss is divided evenly among its labels.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        unknown_as: `ignored`, or `absent`.
        reduction: see `losses.reduce`.
        eps: unused; every loss has it, but the logarithms here are of numbers above 1.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, 0, -1]])
        >>> zlpr(logits, labels, reduction="batchmean")
        tensor(0.4402)
        >>> zlpr(logits, labels, unknown_as="absent", reduction="batchmean")
        tensor(1.2311)
    """
    logits = prepare(logits, labels)
    present, absent = _groups(labels, unknown_as)
    loss = _divided(negative_term(_log_sum_exp(logits, absent, dim=1)), absent, dim=1)
    loss = loss + _divided(negative_term(_log_sum_exp(-logits, present, dim=1)), present, dim=1)
    return reduce(loss, labels, reduction)


def two_way(
    logits: Tensor,
    labels: Tensor,
    *,
    positive_temperature: float = 4.0,
    negative_temperature: float = 1.0,
    unknown_as: UnknownAs = "ignored",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Present above absent classes within each image, and images with a class above those without within each class.

    The published loss is `reduction="mean"`. Entry by entry, the loss of an image or class is divided evenly among
    its labels.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        positive_temperature: T₊; the larger, the more present labels count beside the one that scores lowest.
        negative_temperature: T₋.
        unknown_as: `ignored`, or `absent`.
        reduction: see `losses.reduce`.
        eps: unused; every loss has it, but softplus has no logarithm of a probability.

    Raises:
        ValueError: if a temperature is not positive.

    Example:
        >>> logits = torch.tensor([[2.0, -1.0], [-1.0, 0.5]])
        >>> two_way(logits, torch.tensor([[1, 0], [0, 1]]))
        tensor(0.2500)
    """
    if positive_temperature <= 0 or negative_temperature <= 0:
        raise ValueError(
            f"positive_temperature {positive_temperature} and negative_temperature {negative_temperature} must be "
            "above 0."
        )
    logits = prepare(logits, labels)
    present, absent = _groups(labels, unknown_as)
    loss = torch.zeros_like(logits)
    for dim in (0, 1):
        low = positive_temperature * _log_sum_exp(-logits / positive_temperature, present, dim)
        high = negative_temperature * _log_sum_exp(logits / negative_temperature, absent, dim)
        compared = present.any(dim=dim, keepdim=True) & absent.any(dim=dim, keepdim=True)
        difference = negative_term(low + high).masked_fill(~compared, 0.0) / compared.sum().clamp(min=1)
        loss = loss + _divided(difference, present | absent, dim)
    return reduce(loss * loss.numel(), labels, reduction)


def _groups(labels: Tensor, unknown_as: UnknownAs) -> tuple[Tensor, Tensor]:
    """B×L bool twice: the present and the absent labels."""
    present = labels == POSITIVE
    return present, (labels == NEGATIVE if unknown_as == "ignored" else ~present)


def _log_sum_exp(values: Tensor, members: Tensor, dim: int) -> Tensor:
    """The log of Σ exp over the members of each group, and far below zero for an empty group.

    >>> _log_sum_exp(torch.tensor([[0.0, 9.0], [3.0, 4.0]]), torch.tensor([[True, False], [False, False]]), dim=1)
    tensor([[ 0.0000e+00],
            [-1.0000e+09]])
    """
    return torch.logsumexp(values.masked_fill(~members, _LOWEST), dim=dim, keepdim=True)


def _divided(loss: Tensor, members: Tensor, dim: int) -> Tensor:
    """The loss of each group, divided evenly among its members; 0 for others."""
    return torch.where(members, loss / members.sum(dim=dim, keepdim=True).clamp(min=1), 0.0)
