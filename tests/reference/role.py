"""ROLE: two halves, each a cross term, a positive term and the penalty of EPR."""

from __future__ import annotations

from reference.expected_positive import penalty
from reference.terms import negative_term, positive_term, sigmoid


def half(
    logits: list[list[float]],
    labels: list[list[int]],
    target: list[list[float]],
    expected: float,
    eps: float = 0.0,
) -> float:
    """L'(a | b), b being probabilities."""
    cross, positives, entries = 0.0, 0.0, 0
    for row, observed, taught in zip(logits, labels, target, strict=True):
        for g, z, b in zip(row, observed, taught, strict=True):
            entries += 1
            cross += b * positive_term(g, eps) + (1 - b) * negative_term(g, eps)
            if z == 1:
                positives += positive_term(g, eps)
    return cross / entries + positives / entries + penalty(logits, expected)


def role(
    logits: list[list[float]],
    labels: list[list[int]],
    estimates: list[list[float]],
    expected: float,
    eps: float = 0.0,
) -> float:
    predicted = [[sigmoid(g) for g in row] for row in logits]
    estimated = [[sigmoid(g) for g in row] for row in estimates]
    return (half(logits, labels, estimated, expected, eps) + half(estimates, labels, predicted, expected, eps)) / 2
