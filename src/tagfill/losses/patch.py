"""Patch supervision: where a label was seen, the cell that saw it should say so.

    L_patch = Σ_{(c,r): t=1} w₊ FL(F_c^r, γ₊) + Σ_{(c,r): t=0} w₋ FL(1−F_c^r, γ₋) + Σ_{(c,r)∈U} w_u FL(1−F_c^r, γ_u)

FL(p, γ) = (1−p)^γ (−log p), with a factor that is held constant, as in `selective`. F = σ(S) are class maps and t the
labels of their cells: 1 where the class was marked, 0 all over an image that lacks it, -1 elsewhere. U is empty
(`ignore`), or what CSL-P selects: the cells not marked of a class that is marked somewhere in the image, but for the k
likeliest of them, which may belong to the object too. The printed sums all run over positive cells, which cannot be
meant; they are read as above.

Nothing is said about normalisation. Here the sum of each image and class is divided by the number of its cells that
count, so that the weight of the term does not depend on the grid (`cells="mean"`); then the loss of a class in an image
is reduced like any other. The scope of the k is not given either: it is each class of each image, or k of them on
average over the batch, as CSL has it for labels.

PatchML: Patch Based Learning for Multi-label Image Classification.


FixMatch for several labels: what a weak view is sure of, a strong view of the same image must say too.

    p   = σ(g_weak), held constant
    m⁺  = 1[p ≥ τ⁺],  m⁻ = 1[p ≤ τ⁻]                over unknown labels only
    L_u = Σ (m⁺ ℓ⁺(g_strong) + m⁻ ℓ⁻(g_strong)) / max(1, Σ (m⁺ + m⁻))

Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence, NeurIPS 2020, for one label
an image; the thresholds for positives and negatives follow Rizve et al., In Defense of Pseudo-Labeling, ICLR 2021.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, prepare, reduce, shape_of
from tagfill.losses.selective import likeliest, selective

Triple = tuple[float, float, float]
Unknown = Literal["ignore", "selective"]
Scope = Literal["class", "batch"]
Cells = Literal["mean", "sum"]


def patch(
    maps: Tensor,
    patch_labels: Tensor,
    *,
    gammas: Triple = (0.0, 1.0, 4.0),
    weights: Triple = (1.0, 1.0, 1.0),
    unknown: Unknown = "ignore",
    k: int = 10,
    scope: Scope = "class",
    cells: Cells = "mean",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """The patch loss of dense cell labels.

    Args:
        maps: B×L×H×W class maps, as logits.
        patch_labels: B×L×H×W, 1 marked, 0 absent, -1 unknown.
        gammas: γ of positive, negative and unknown cells.
        weights: w of positive, negative and unknown cells.
        unknown: "ignore", or "selective" for CSL-P.
        k: the likeliest unknown cells that CSL-P leaves out.
        scope: of those k: "class" for each class of an image, "batch" for that many on average.
        cells: "mean" or "sum" over the cells that count, for each class of an image.
        reduction: of the B×L losses, see `losses.reduce`; "known" counts classes with a known cell.
        eps: smallest probability inside a logarithm.

    Example:
        >>> maps = torch.tensor([[[[2.0, -1.0]], [[0.5, 0.0]]]])
        >>> labels = torch.tensor([[[[1, -1]], [[0, 0]]]])
        >>> patch(maps, labels, gammas=(0, 0, 0), reduction="none")
        tensor([[0.1269, 0.8336]])
    """
    if maps.ndim != 4 or maps.shape != patch_labels.shape:
        raise ValueError(
            f"The maps are {shape_of(maps)} and the patch labels {shape_of(patch_labels)}; both need one row an image, "
            "one column a class, and the same grid."
        )
    state = patch_labels.flatten(2).amax(-1) if patch_labels.numel() else patch_labels.flatten(2).sum(-1)
    image, label = torch.nonzero(state != UNKNOWN, as_tuple=True)
    entries = patch_entries(
        maps[image, label],
        patch_labels[image, label],
        gammas=gammas,
        weights=weights,
        unknown=unknown,
        k=k,
        scope=scope,
        cells=cells,
        eps=eps,
    )
    return reduce(entries.new_zeros(state.shape).index_put((image, label), entries), state, reduction)


def patch_entries(
    maps: Tensor,
    patch_labels: Tensor,
    *,
    gammas: Triple = (0.0, 1.0, 4.0),
    weights: Triple = (1.0, 1.0, 1.0),
    unknown: Unknown = "ignore",
    k: int = 10,
    scope: Scope = "class",
    cells: Cells = "mean",
    eps: float = 0.0,
) -> Tensor:
    """The patch loss of chosen (image, class) pairs, for the few that are known of many.

    Args:
        maps: n×H×W, the class map of each pair.
        patch_labels: n×H×W.
        gammas: γ of positive, negative and unknown cells.
        weights: w of positive, negative and unknown cells.
        unknown: "ignore" or "selective".
        k: the likeliest unknown cells that CSL-P leaves out.
        scope: of those k, "class" or "batch".
        cells: "mean" or "sum" over the cells that count.
        eps: smallest probability inside a logarithm.

    Returns:
        n losses.

    Example:
        >>> patch_entries(torch.tensor([[[2.0, -1.0]]]), torch.tensor([[[1, -1]]]), unknown="selective", k=0)
        tensor([0.0643])
    """
    logits, labels = maps.flatten(1), patch_labels.flatten(1)
    counted = None if unknown == "ignore" else _selected(logits, labels, unknown, k, scope)
    entries = selective(
        logits,
        labels,
        gammas=gammas,
        alphas=weights,
        ignore=None if counted is None else ~counted,
        mode="ignore" if counted is None else "negative",
        reduction="none",
        eps=eps,
    )
    loss = entries.sum(1)
    if cells == "sum":
        return loss
    if cells != "mean":
        raise ValueError(f"There is no way '{cells}' to join cells. Known: mean, sum.")
    used = labels != UNKNOWN if counted is None else (labels != UNKNOWN) | counted
    return loss / used.sum(1).clamp(min=1)


def _selected(logits: Tensor, labels: Tensor, unknown: str, k: int, scope: str) -> Tensor:
    """The unknown cells that CSL-P reads as negatives."""
    if unknown != "selective":
        raise ValueError(f"There is no way '{unknown}' to treat unknown cells. Known: ignore, selective.")
    marked = (labels == POSITIVE).any(1, keepdim=True)
    open_cells = (labels == UNKNOWN) & marked
    if scope == "class":
        return open_cells & ~likeliest(logits, open_cells, k)
    if scope == "batch":
        spared = likeliest(logits.flatten(), open_cells.flatten(), k * int(marked.sum()))
        return open_cells & ~spared.view_as(open_cells)
    raise ValueError(f"There is no scope '{scope}' of the likeliest cells. Known: class, batch.")


def pseudo_labels(weak: Tensor, labels: Tensor, *, positive: float = 0.95, negative: float = 0.05) -> Tensor:
    """What a weak view is sure of among the unknown labels; train a strong view with `binary(..., reduction="known")`.

    Args:
        weak: B×L logits.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        positive: τ⁺, the least probability of a pseudo-positive.
        negative: τ⁻, the largest probability of a pseudo-negative.

    Returns:
        B×L int8: 1 and 0 for pseudo-labels, -1 for what is known already or unsure.

    Example:
        >>> pseudo_labels(torch.tensor([[4.0, -4.0, 0.0, 4.0]]), torch.tensor([[-1, -1, -1, 0]]))
        tensor([[ 1,  0, -1, -1]], dtype=torch.int8)
    """
    probability = prepare(weak, labels).detach().sigmoid()
    found = torch.full_like(labels, UNKNOWN, dtype=torch.int8)
    found.masked_fill_(probability <= negative, NEGATIVE).masked_fill_(probability >= positive, POSITIVE)
    return found.masked_fill_(labels != UNKNOWN, UNKNOWN)
