"""BoostLU by its two pieces, and its slope."""

from __future__ import annotations


def boost(score: float, alpha: float, beta: float) -> float:
    return alpha * score + (1 - alpha) * beta if score >= beta else score


def slope(score: float, alpha: float, beta: float) -> float:
    """1 at exactly β, as in the published code."""
    return alpha if score > beta else 1.0


def logit(cells: list[list[float]], alpha: float, beta: float) -> float:
    """The mean over the cells of one class map."""
    total, count = 0.0, 0
    for row in cells:
        for score in row:
            total += boost(score, alpha, beta)
            count += 1
    return total / count
