"""Focal cross-entropy with its own focus and weight for positives, negatives and unknowns that are read as negatives.

    FL(p, γ) = (1−p)^γ (−log p)
    L = 1[z=1] w₊ FL(f, γ₊) + 1[z=0] w₋ FL(1−f, γ₋) + 1[z=−1] ω w_u FL(1−f, γ_u)

ω is 1 for the unknowns that are read as negatives, and 0 for the others, which are left out. The class-aware selective
loss (CSL) leaves out the likeliest ones: `likeliest` finds them. The focal factor (1−p)^γ is held constant, as in the
code of CSL, so it weighs the gradient of the cross-entropy and has none of its own.

Lin et al., Focal Loss for Dense Object Detection, ICCV 2017. Ben-Baruch et al., Multi-label Classification with Partial
Annotations using Class-aware Selective Loss, CVPR 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.losses.reduction import NEGATIVE, POSITIVE, UNKNOWN, Reduction, reduce
from tagfill.losses.terms import negative_term, positive_term, prepare, shape_of

Triple = tuple[float, float, float]


def focal(
    logits: Tensor,
    labels: Tensor,
    *,
    gammas: Triple = (0.0, 1.0, 4.0),
    weights: Triple = (1.0, 1.0, 1.0),
    as_negative: Tensor | None = None,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Focal cross-entropy of known labels, and of chosen unknown ones as negatives.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        gammas: γ of positives, negatives and unknowns.
        weights: w of positives, negatives and unknowns.
        as_negative: B×L bool, ω; entries that are known do not matter. None leaves out all unknowns.
        reduction: see `reduction.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, 0, -1]])
        >>> focal(logits, labels, gammas=(0, 0, 0), reduction="sum")
        tensor(0.4402)
        >>> focal(logits, labels, gammas=(0, 2, 0), as_negative=torch.ones(1, 3, dtype=torch.bool), reduction="none")
        tensor([[0.1269, 0.0227, 0.9741]])
    """
    logits = prepare(logits, labels)
    if as_negative is not None and as_negative.shape != labels.shape:
        raise ValueError(
            f"The labels are {shape_of(labels)} and as_negative is {shape_of(as_negative)}; they must agree."
        )
    chosen = torch.zeros_like(labels, dtype=torch.bool) if as_negative is None else as_negative
    present, absent = torch.sigmoid(logits).detach(), torch.sigmoid(-logits).detach()
    rewarded = weights[0] * absent ** gammas[0] * positive_term(logits, eps)
    penalty = negative_term(logits, eps)
    loss = torch.zeros_like(logits)
    loss = torch.where(labels == POSITIVE, rewarded, loss)
    loss = torch.where(labels == NEGATIVE, weights[1] * present ** gammas[1] * penalty, loss)
    loss = torch.where((labels == UNKNOWN) & chosen, weights[2] * present ** gammas[2] * penalty, loss)
    return reduce(loss, labels, reduction)


def likeliest(logits: Tensor, among: Tensor, count: int) -> Tensor:
    """The `count` entries of each row with the largest logits, of those in `among`; of equal ones the first.

    Args:
        logits: …×n.
        among: …×n bool.
        count: how many of a row; fewer where there are fewer.

    Returns:
        …×n bool.

    Example:
        >>> likeliest(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([False, True, True]), 1)
        tensor([False, False,  True])
    """
    ranked = logits.detach().masked_fill(~among, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    found = torch.zeros_like(among).scatter_(-1, ranked[..., :count], True)
    return found & among
