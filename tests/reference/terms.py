"""Probabilities and their logarithms, one number at a time."""

from __future__ import annotations

from math import exp, log


def sigmoid(logit: float) -> float:
    return 1 / (1 + exp(-logit))


def positive_term(logit: float, eps: float = 0.0) -> float:
    """−log(f + eps)."""
    return -log(sigmoid(logit) + eps)


def negative_term(logit: float, eps: float = 0.0) -> float:
    """−log(1 − f + eps), where 1 − σ(g) = σ(−g)."""
    return -log(sigmoid(-logit) + eps)
