"""Distances of a prediction from a remembered probability, mean over all entries."""

from __future__ import annotations

from math import log

from reference.terms import sigmoid


def divergence(p: float, q: float, eps: float = 0.0) -> float:
    """Σ_k p_k log(p_k / q_k) of two coins; what has no probability adds nothing."""
    total = 0.0
    for a, b in ((p, q), (1 - p, 1 - q)):
        if a > 0:
            total += a * (log(a + eps) - log(b + eps))
    return total


def distance(p: float, t: float, name: str, eps: float = 0.0) -> float:
    if name == "l1":
        return abs(p - t)
    if name == "l2":
        return (p - t) ** 2
    middle = (p + t) / 2
    return divergence(p, middle, eps) / 2 + divergence(t, middle, eps) / 2


def consistency(logits: list[list[float]], target: list[list[float]], name: str = "l1", eps: float = 0.0) -> float:
    total, entries = 0.0, 0
    for row, remembered in zip(logits, target, strict=True):
        for g, t in zip(row, remembered, strict=True):
            total += distance(sigmoid(g), t, name, eps)
            entries += 1
    return total / entries
