"""P-ASL and CSL: separate focusing strengths for positives, negatives and unknowns, some of which are ignored.

    f = σ(g),  q = min(1 − f + clip, 1)
    positives   −α₊ (1−f)^γ₊ log f
    negatives   −α₋ (1−q)^γ₋ log q
    unknowns    −α_u (1−q)^γ_u log q, or 0 where ignored

    mode                ignored unknowns
    negative            only those in `ignore`
    ignore              all
    ignore_normalized   all; each image's loss is multiplied by 1 + 1/(1+n), n its known labels

CSL ignores the unknowns of classes with a large prior and, in the whole batch, those with the largest f (`top_k_mask`).
The powers are weights without a gradient, as in the released code, so the gradient of this loss is not the derivative
of its value. Logarithms are exact unless `eps` is set; they then are log max(p, eps), flat below eps, with 1e-8 in the
released code.

Ben-Baruch et al., Multi-label Classification with Partial Annotations using Class-aware Selective Loss, CVPR 2022.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, prepare, reduce, shape_of

Mode = Literal["negative", "ignore", "ignore_normalized", "ignore_normalised"]  # the last: spelling of version 0.1


def selective(
    logits: Tensor,
    labels: Tensor,
    *,
    gammas: tuple[float, float, float] = (0.0, 1.0, 2.0),
    alphas: tuple[float, float, float] = (1.0, 1.0, 1.0),
    clip: float = 0.0,
    ignore: Tensor | None = None,
    mode: Mode = "negative",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Focal cross-entropy with unknowns as negatives with their own focusing strength, or ignored.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        gammas: γ₊, γ₋ and γ_u.
        alphas: α₊, α₋ and α_u.
        clip: added to 1 − f, so that easy negatives cost nothing.
        ignore: B×L bool, unknowns to ignore; known labels are never ignored.
        mode: how the other unknowns are treated: "negative", "ignore" or "ignore_normalized".
        reduction: see `losses.reduce`; "sum" as published.
        eps: smallest probability inside a logarithm (1e-8 as published).

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> selective(logits, labels, reduction="sum")
        tensor(0.5270)
        >>> selective(logits, labels, ignore=torch.tensor([[False, False, True]]), reduction="sum")
        tensor(0.1496)
    """
    logits = prepare(logits, labels)
    positive, unknown = labels == POSITIVE, labels == UNKNOWN
    if mode not in get_args(Mode):
        raise ValueError(f"There is no mode '{mode}'. Known: negative, ignore, ignore_normalized.")
    if ignore is not None and ignore.shape != labels.shape:
        raise ValueError(f"The labels are {shape_of(labels)} and the ignored {shape_of(ignore)}; they must agree.")
    with torch.no_grad():
        missing = (-logits).sigmoid().where(positive, (logits.sigmoid() - clip).clamp(min=0))  # 1 − f, or 1 − q
        gamma = _by_state(gammas, positive, unknown, logits)
        weight = _by_state(alphas, positive, unknown, logits) * missing.pow(gamma)
        if mode in ("ignore_normalized", "ignore_normalised"):
            weight = weight * (1 + 1 / (1 + (~unknown).sum(1, keepdim=True, dtype=weight.dtype)))
    loss = -weight * torch.where(positive, _log(logits, 0.0, eps), _log(-logits, clip, eps))
    ignored = unknown & ignore if mode == "negative" and ignore is not None else unknown & (mode != "negative")
    return reduce(loss.masked_fill(ignored, 0.0), labels, reduction)


def top_k_mask(logits: Tensor, among: Tensor, count: int | Tensor) -> Tensor:
    """A mask of the `count` entries with the largest logits in each row, among those in `among`.

    Args:
        logits: …×n.
        among: …×n bool.
        count: entries per row, or a tensor with that number; fewer where `among` has fewer. Of equal logits the first
            are taken.

    Returns:
        …×n bool.

    Example:
        >>> top_k_mask(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([False, True, True]), 1)
        tensor([False, False,  True])
    """
    ranked = logits.detach().masked_fill(~among, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    if isinstance(count, int):
        return torch.zeros_like(among).scatter_(-1, ranked[..., :count], True) & among
    taken = torch.arange(among.shape[-1], device=among.device) < count  # a number that stays on its device
    return torch.zeros_like(among).scatter_(-1, ranked, taken.expand_as(ranked)) & among


def _by_state(values: tuple[float, float, float], positive: Tensor, unknown: Tensor, like: Tensor) -> Tensor:
    """One number each for positives, negatives and unknowns."""
    of_positives, of_negatives, of_unknowns = values
    return torch.full_like(like, of_negatives).masked_fill(positive, of_positives).masked_fill(unknown, of_unknowns)


def _log(logits: Tensor, clip: float, eps: float) -> Tensor:
    """The logarithm of min(σ(g) + clip, 1), at least log eps."""
    if clip == 0 and eps == 0:
        return F.logsigmoid(logits)
    return (logits.sigmoid() + clip).clamp(min=eps, max=1).log()
