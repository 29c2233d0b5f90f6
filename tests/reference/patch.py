"""Focal cross-entropy of labels and the patch loss of cells, one at a time."""

from __future__ import annotations

import math

Triple = tuple[float, float, float]


def focal_entry(
    logit: float, label: int, as_negative: bool, gammas: Triple, weights: Triple, eps: float = 0.0
) -> float:
    present = 1 / (1 + math.exp(-logit))
    absent = 1 / (1 + math.exp(logit))
    if label == 1:
        return weights[0] * absent ** gammas[0] * -math.log(max(present, eps))
    if label == 0:
        return weights[1] * present ** gammas[1] * -math.log(max(absent, eps))
    if as_negative:
        return weights[2] * present ** gammas[2] * -math.log(max(absent, eps))
    return 0.0


def patch(
    maps: list[list[list[float]]],
    labels: list[list[list[int]]],
    gammas: Triple,
    weights: Triple,
    selective: bool,
    k: int,
    scope: str,
    mean: bool,
    eps: float = 0.0,
) -> list[list[float]]:
    """Loss of each class of each image; maps and labels are B×L lists of cells."""
    open_cells = [
        (b, c, r)
        for b, row in enumerate(labels)
        for c, cells in enumerate(row)
        for r, label in enumerate(cells)
        if label == -1 and 1 in cells
    ]
    open_cells.sort(key=lambda cell: (-maps[cell[0]][cell[1]][cell[2]], cell))
    marked = sum(1 in cells for row in labels for cells in row)
    spared: set[tuple[int, int, int]] = set()
    for cell in open_cells:
        of_class = [other for other in spared if other[:2] == cell[:2]]
        if (len(of_class) < k) if scope == "class" else (len(spared) < k * marked):
            spared.add(cell)
    losses = []
    for b, row in enumerate(labels):
        losses.append([])
        for c, cells in enumerate(row):
            total, used = 0.0, 0
            for r, label in enumerate(cells):
                counted = selective and (b, c, r) in open_cells and (b, c, r) not in spared
                total += focal_entry(maps[b][c][r], label, counted, gammas, weights, eps)
                used += label != -1 or counted
            losses[-1].append(total / max(used, 1) if mean else total)
    return losses
