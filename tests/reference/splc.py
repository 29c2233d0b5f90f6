"""SPLC, entry by entry, summed."""

from __future__ import annotations

from reference.terms import negative_term, positive_term, sigmoid


def splc(
    logits: list[list[float]],
    labels: list[list[int]],
    correct: bool,
    threshold: float = 0.6,
    margin: float = 1.0,
    gamma: float = 2.0,
    eps: float = 0.0,
) -> float:
    total = 0.0
    for row, observed in zip(logits, labels, strict=True):
        for g, z in zip(row, observed, strict=True):
            s = g - margin if z == 1 else g
            present = z == 1 or (correct and z == -1 and sigmoid(s) > threshold)
            if present:
                total += sigmoid(-s) ** gamma * positive_term(s, eps)
            else:
                total += sigmoid(s) ** gamma * negative_term(s, eps)
    return total
