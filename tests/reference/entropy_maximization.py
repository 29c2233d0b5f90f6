"""EM and EM+APL, mean over all B·L entries; a soft label below zero is none."""

from __future__ import annotations

from reference.terms import negative_term, positive_term, sigmoid


def entropy_maximization(
    logits: list[list[float]],
    labels: list[list[int]],
    alpha: float,
    soft_labels: list[list[float]] | None = None,
    soft_weight: float = 0.0,
    use_negatives: bool = False,
    eps: float = 0.0,
) -> float:
    total, entries = 0.0, 0
    for at, (row, observed) in enumerate(zip(logits, labels, strict=True)):
        for where, (g, z) in enumerate(zip(row, observed, strict=True)):
            entries += 1
            soft = -1.0 if soft_labels is None else soft_labels[at][where]
            if z == 1:
                total += positive_term(g, eps)
            elif z == 0 and use_negatives:
                total += negative_term(g, eps)
            elif soft >= 0:
                total += soft_weight * (soft * positive_term(g, eps) + (1 - soft) * negative_term(g, eps))
            else:
                total -= alpha * (sigmoid(g) * positive_term(g, eps) + sigmoid(-g) * negative_term(g, eps))
    return total / entries
