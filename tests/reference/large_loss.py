"""Large loss by sorting, with the number of entries counted in integers."""

from __future__ import annotations

from reference.terms import negative_term, positive_term


def large_loss_mask(
    logits: list[list[float]],
    labels: list[list[int]],
    percent: int,
    explicit_negatives: bool = False,
    strict: bool = False,
    eps: float = 0.0,
) -> list[list[bool]]:
    """M, for ρ = percent/100."""
    entries = len(labels) * len(labels[0])
    wanted = (entries * percent + 99) // 100
    losses = []
    for row, observed in zip(logits, labels, strict=True):
        for g, z in zip(row, observed, strict=True):
            if z == -1 or (explicit_negatives and z == 0):
                losses.append(negative_term(g, eps))
    losses.sort(reverse=True)
    wanted = min(wanted, len(losses))
    large = []
    for row, observed in zip(logits, labels, strict=True):
        large.append([])
        for g, z in zip(row, observed, strict=True):
            candidate = z == -1 or (explicit_negatives and z == 0)
            inside = False
            if candidate and wanted > 0:
                loss, threshold = negative_term(g, eps), losses[wanted - 1]
                inside = loss > threshold if strict else loss >= threshold
            large[-1].append(inside)
    return large


def large_loss(
    logits: list[list[float]],
    labels: list[list[int]],
    percent: int,
    correct: bool = False,
    explicit_negatives: bool = False,
    eps: float = 0.0,
) -> float:
    """The mean over B·L."""
    large = large_loss_mask(logits, labels, percent, explicit_negatives, eps=eps)
    total, entries = 0.0, 0
    for row, observed, chosen in zip(logits, labels, large, strict=True):
        for g, z, inside in zip(row, observed, chosen, strict=True):
            entries += 1
            if inside and correct:
                total += positive_term(g, eps)
            elif inside:
                total += 0.0
            elif z == 1:
                total += positive_term(g, eps)
            else:
                total += negative_term(g, eps)
    return total / entries
