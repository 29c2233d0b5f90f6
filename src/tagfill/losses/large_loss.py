"""Large loss: unknown labels are treated as absent, except those with the largest losses, which are likely wrong.

    ℓ = 1[z=1] ℓ⁺ + 1[z≠1] ℓ⁻                assume negative
    u = ℓ where z is unknown                 the candidates
    k = ⌈B·L·ρ⌉,  τ = the k-th largest u of the whole batch,  M = {u ≥ τ}

    reject    ℓ, and 0 on M                  LL-R
    correct   ℓ, and ℓ⁺ on M                 LL-Ct; LL-Cp also stores M

The ranking is over all images and classes of the batch together, and ρ (`rate`) is a share of all B·L entries, not of
the unknown ones. All ties at τ belong to M. Observed positives never do. Explicit negatives do only with
candidates="not_positive".

Two differences from the released code. There, k larger than the number of unknowns makes τ zero and M everything,
including observed positives; here k is at most the number of candidates. And ⌈B·L·ρ⌉ is computed with fractions, not
with floating-point numbers, in which 0.3 % of 1,000 entries, reached in three steps of 0.1 %, would be 4.

Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Literal

import torch
from torch import Tensor

from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, negative_term, positive_term, prepare, reduce, shape_of

Mode = Literal["reject", "correct"]
Candidates = Literal["unknown", "not_positive"]

_FINEST = 10**9  # largest denominator of a rate as a fraction


def large_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    rate: float | Fraction,
    mode: Mode = "reject",
    candidates: Candidates = "unknown",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Assume negative, with the largest losses of the batch rejected or corrected.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        rate: ρ, share of all B·L entries; 0 is plain assume negative.
        mode: "reject" or "correct".
        candidates: "unknown", or "not_positive" to include explicit negatives.
        reduction: see `losses.reduce`; "mean" divides by B·L, including rejected entries.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> large_loss(logits, labels, rate=1 / 3)
        tensor(0.1467)
        >>> large_loss(logits, labels, rate=1 / 3, mode="correct")
        tensor(0.3048)
    """
    large = large_loss_mask(logits, labels, rate=rate, candidates=candidates, eps=eps)
    return large_loss_from_mask(logits, labels, large, mode=mode, reduction=reduction, eps=eps)


def large_loss_mask(
    logits: Tensor,
    labels: Tensor,
    *,
    rate: float | Fraction,
    candidates: Candidates = "unknown",
    strict: bool = False,
    eps: float = 0.0,
) -> Tensor:
    """M: the candidates with the largest losses of the batch.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        rate: ρ, share of all B·L entries.
        candidates: "unknown", or "not_positive" to include explicit negatives.
        strict: exclude losses equal to the threshold, M = {u > τ}.
        eps: added to probabilities inside logarithms.

    Returns:
        B×L bool.

    Example:
        >>> large_loss_mask(torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]]), rate=1 / 3)
        tensor([[False, False,  True]])
    """
    logits = prepare(logits.detach(), labels)
    if candidates not in ("unknown", "not_positive"):
        raise ValueError(f"There are no candidates '{candidates}'. Known: unknown, not_positive.")
    candidate = labels == UNKNOWN if candidates == "unknown" else labels != POSITIVE
    count = min(entry_count(rate, labels.numel()), labels.numel())
    if count == 0:
        return torch.zeros_like(candidate)
    losses = negative_term(logits, eps).masked_fill(~candidate, -torch.inf)
    largest = losses.flatten().topk(count).values
    last = (candidate.sum().clamp(max=count) - 1).clamp(min=0)  # there may be fewer candidates
    threshold = largest.gather(0, last[None])
    return candidate & (losses > threshold if strict else losses >= threshold)


def large_loss_from_mask(
    logits: Tensor,
    labels: Tensor,
    entries: Tensor,
    *,
    mode: Mode = "reject",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Assume negative, with given entries rejected or corrected.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        entries: B×L bool, M.
        mode: "reject" ignores them, "correct" treats them as present.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, -1]])
        >>> large_loss_from_mask(logits, labels, torch.tensor([[False, True]]))
        tensor(0.0635)
    """
    logits = prepare(logits, labels)
    if entries.shape != labels.shape:
        raise ValueError(f"The labels are {shape_of(labels)} and the entries {shape_of(entries)}; they must agree.")
    positive = labels == POSITIVE
    if mode == "reject":
        loss = torch.where(positive, positive_term(logits, eps), negative_term(logits, eps)).masked_fill(entries, 0.0)
    elif mode == "correct":
        loss = torch.where(positive | entries, positive_term(logits, eps), negative_term(logits, eps))
    else:
        raise ValueError(f"There is no mode '{mode}'. Known: reject, correct.")
    return reduce(loss, labels, reduction)


def entry_count(rate: float | Fraction, entries: int) -> int:
    """⌈entries·rate⌉ without floating-point errors.

    Example:
        >>> entry_count(3 * 0.001, 1000), ceil(3 * 0.001 * 1000)
        (3, 3)
        >>> entry_count(3 * 0.1 / 100, 1000), ceil(3 * 0.1 / 100 * 1000)
        (3, 4)
    """
    if not rate >= 0:
        raise ValueError(f"The rate is {rate}; it is a share of all entries and cannot be negative.")
    return ceil(Fraction(rate).limit_denominator(_FINEST) * entries)
