"""Losses with evidence of other taggers, entry by entry: VLPL, and soft positives."""

from __future__ import annotations

import math


def _terms(g):
    f = 1 / (1 + math.exp(-g))
    present, absent = -math.log(f), -math.log(1 - f)
    return present, absent, f * present + (1 - f) * absent


def vlpl(logits, labels, cosines, *, alpha, beta, smoothing, threshold, temperature):
    """Mean over all entries; a missing cosine is None."""
    total, count = 0.0, 0
    for row, states, scores in zip(logits, labels, cosines, strict=True):
        powers = [None if x is None else math.exp(x / temperature) for x in scores]
        whole = sum(power for power in powers if power is not None)
        for g, z, power in zip(row, states, powers, strict=True):
            present, absent, entropy = _terms(g)
            count += 1
            if z == 1:
                total += present
            elif z == 0:
                total += absent
            elif power is not None and power / whole >= threshold:
                total += beta * ((1 - smoothing) * present + smoothing * absent)
            else:
                total += -alpha * entropy
    return total / count


def soft_positive(logits, labels, share, *, weight, negative_weight, alpha):
    """Mean over all entries."""
    total, count = 0.0, 0
    for row, states, shares in zip(logits, labels, share, strict=True):
        for g, z, t in zip(row, states, shares, strict=True):
            present, absent, entropy = _terms(g)
            count += 1
            if z == 1:
                total += present
            elif z == 0:
                total += absent
            else:
                total += weight * t * present + (1 - t) * (negative_weight * absent - alpha * entropy)
    return total / count
