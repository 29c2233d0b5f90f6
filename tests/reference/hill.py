"""Hill, summed over all entries."""

from __future__ import annotations

from reference.terms import positive_term, sigmoid


def hill(
    logits: list[list[float]], labels: list[list[int]], peak: float, margin: float, gamma: float, eps: float = 0.0
) -> float:
    total = 0.0
    for row, observed in zip(logits, labels, strict=True):
        for g, z in zip(row, observed, strict=True):
            if z == 1:
                total += sigmoid(margin - g) ** gamma * positive_term(g - margin, eps)
            else:
                total += (peak - sigmoid(g)) * sigmoid(g) ** 2
    return total
