"""Confidence intervals of a share, by definition: every share that the test does not reject, found by trying them."""

from __future__ import annotations

from math import comb, sqrt


def wilson(hits: int, decisions: int, z: float = 1.959963984540054, steps: int = 20_000) -> tuple[float, float]:
    """Shares p with |hits/n − p| ≤ z·√(p(1−p)/n): the score test inverted on a grid."""
    kept = [
        step / steps
        for step in range(steps + 1)
        if abs(hits / decisions - step / steps) <= z * sqrt(step / steps * (1 - step / steps) / decisions) + 1e-15
    ]
    return min(kept), max(kept)


def coverage(interval, decisions: int, share: float) -> float:
    """How often the interval of a sample of this size holds the share: a sum over all possible samples."""
    total = 0.0
    for hits in range(decisions + 1):
        low, high = interval(hits, decisions)
        if low <= share <= high:
            total += comb(decisions, hits) * share**hits * (1 - share) ** (decisions - hits)
    return total
