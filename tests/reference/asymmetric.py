"""ASL, summed over all entries."""

from __future__ import annotations

from math import log

from reference.terms import sigmoid


def asymmetric(
    logits: list[list[float]],
    labels: list[list[int]],
    gamma_positive: float,
    gamma_negative: float,
    margin: float,
    eps: float = 0.0,
) -> float:
    total = 0.0
    for row, observed in zip(logits, labels, strict=True):
        for g, z in zip(row, observed, strict=True):
            if z == 1:
                total += sigmoid(-g) ** gamma_positive * -log(max(sigmoid(g), eps))
            else:
                shifted = max(sigmoid(g) - margin, 0.0)
                rest = min(sigmoid(-g) + margin, 1.0)  # 1 − shifted, without taking nearly equal numbers apart
                total += shifted**gamma_negative * -log(max(rest, eps))
    return total
