"""EN and EP, mean over all B·L entries."""

from __future__ import annotations

from reference.terms import negative_term, positive_term


def expected_negative(
    logits: list[list[float]],
    labels: list[list[int]],
    expected_positives: list[list[bool]],
    also_positive: bool = False,
    literal: bool = False,
    eps: float = 0.0,
) -> float:
    total, entries = 0.0, 0
    for row, observed, expected in zip(logits, labels, expected_positives, strict=True):
        for g, z, ranked in zip(row, observed, expected, strict=True):
            entries += 1
            z_hat = 0 if z == 0 else int(ranked)
            if z == 1 and not literal:
                z_hat = 1
            if z == 1 or (also_positive and z_hat == 1):
                total += positive_term(g, eps)
            if z_hat == 0:
                total += negative_term(g, eps)
    return total / entries
