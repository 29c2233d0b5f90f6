"""EPR: the positives' mean over B·L, and the penalty on the batch's mean positive count."""

from __future__ import annotations

from reference.terms import positive_term, sigmoid


def positive_count(logits: list[list[float]]) -> float:
    """κ̂."""
    total = 0.0
    for row in logits:
        for g in row:
            total += sigmoid(g)
    return total / len(logits)


def penalty(logits: list[list[float]], expected: float) -> float:
    """R."""
    return ((positive_count(logits) - expected) / len(logits[0])) ** 2


def expected_positive(
    logits: list[list[float]], labels: list[list[int]], expected: float, weight: float = 1.0, eps: float = 0.0
) -> float:
    total, entries = 0.0, 0
    for row, observed in zip(logits, labels, strict=True):
        for g, z in zip(row, observed, strict=True):
            entries += 1
            if z == 1:
                total += positive_term(g, eps)
    return total / entries + weight * penalty(logits, expected)
