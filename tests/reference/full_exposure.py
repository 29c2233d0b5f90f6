"""FE, sum over classes and mean over images."""

from __future__ import annotations

from reference.terms import negative_term, positive_term


def full_exposure(
    logits: list[list[float]], labels: list[list[int]], positive_weight: float, unknown_as: str, eps: float = 0.0
) -> float:
    total = 0.0
    for row, observed in zip(logits, labels, strict=True):
        for g, z in zip(row, observed, strict=True):
            if z == 1:
                total += positive_weight * positive_term(g, eps)
            elif z == 0 or unknown_as == "absent":
                total += negative_term(g, eps)
            else:
                total += positive_term(g, eps)
    return total / len(logits)
