"""PR: one hinge for each pair of an observed positive and another class, mean over all B·L entries."""

from __future__ import annotations

from reference.terms import sigmoid


def pairwise_rank(logits: list[list[float]], labels: list[list[int]]) -> float:
    total, entries = 0.0, 0
    for row, observed in zip(logits, labels, strict=True):
        entries += len(row)
        for g, z in zip(row, observed, strict=True):
            if z != 1:
                continue
            for rival, seen in zip(row, observed, strict=True):
                if seen != 1:
                    total += max(0.0, 1 - sigmoid(g) + sigmoid(rival))
    return total / entries
