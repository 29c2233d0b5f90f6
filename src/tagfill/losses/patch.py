"""Patch supervision: where a label was marked, the cell of the class map should predict it.

    L_patch = Σ_{(c,r): t=1} w₊ FL(F_c^r, γ₊) + Σ_{(c,r): t=0} w₋ FL(1−F_c^r, γ₋) + Σ_{(c,r)∈U} w_u FL(1−F_c^r, γ_u)

FL(p, γ) = (1−p)^γ (−log p), with a constant factor, as in `selective`. F = σ(S) are class maps and t the labels of
their cells: 1 where the class was marked, 0 in all cells of an image without it, -1 elsewhere. U is empty (`ignore`),
or what CSL-P selects: the unmarked cells of a class that is marked somewhere in the image, except the k likeliest of
them, which may belong to the object too. The printed sums all run over positive cells, which cannot be meant; they are
read as above.

The paper does not mention normalization. Here the sum of each image and class is divided by the number of its cells
that count, so that the weight of the term does not depend on the grid (`cells="mean"`); then the loss of a class in an
image is reduced like any other. The scope of k is not given either: it is each class of each image, or k on average
over the batch, as CSL has it for labels.

PatchML: Patch Based Learning for Multi-label Image Classification.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, reduce, shape_of
from tagfill.losses.selective import selective, top_k_mask

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
    """Patch loss of dense cell labels.

    Args:
        maps: B×L×H×W class maps, as logits.
        patch_labels: B×L×H×W, 1 marked, 0 absent, -1 unknown.
        gammas: γ of positive, negative and unknown cells.
        weights: w of positive, negative and unknown cells.
        unknown: "ignore", or "selective" for CSL-P.
        k: likeliest unknown cells that CSL-P ignores.
        scope: of k: "class" for each class of an image, "batch" for the average over the batch.
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
            f"The maps are {shape_of(maps)} and the patch labels {shape_of(patch_labels)}; both need one row per "
            "image, one column per class, and the same grid."
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
    """Patch loss of chosen (image, class) pairs, where few of many are known.

    Args:
        maps: n×H×W, the class map of each pair.
        patch_labels: n×H×W.
        gammas: γ of positive, negative and unknown cells.
        weights: w of positive, negative and unknown cells.
        unknown: "ignore" or "selective".
        k: likeliest unknown cells that CSL-P ignores.
        scope: of k, "class" or "batch".
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
    """The unknown cells that CSL-P treats as negatives."""
    if unknown != "selective":
        raise ValueError(f"There is no way '{unknown}' to treat unknown cells. Known: ignore, selective.")
    marked = (labels == POSITIVE).any(1, keepdim=True)
    open_cells = (labels == UNKNOWN) & marked
    if scope == "class":
        return open_cells & ~top_k_mask(logits, open_cells, k)
    if scope == "batch":
        spared = top_k_mask(logits.flatten(), open_cells.flatten(), k * marked.sum())
        return open_cells & ~spared.view_as(open_cells)
    raise ValueError(f"There is no scope '{scope}' of the likeliest cells. Known: class, batch.")
