"""BCE and BCE-LS over known labels, mean over all B·L entries."""

from __future__ import annotations

from reference.terms import negative_term, positive_term


def binary(logits: list[list[float]], labels: list[list[int]], smoothing: float = 0.0, eps: float = 0.0) -> float:
    total, entries = 0.0, 0
    for row, known in zip(logits, labels, strict=True):
        for g, z in zip(row, known, strict=True):
            entries += 1
            if z == 1:
                total += (1 - smoothing) * positive_term(g, eps) + smoothing * negative_term(g, eps)
            elif z == 0:
                total += (1 - smoothing) * negative_term(g, eps) + smoothing * positive_term(g, eps)
    return total / entries
