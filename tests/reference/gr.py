"""GR, written from its equations."""

from __future__ import annotations

import math


def generalized_robust(logits, labels, *, slope, offset, center, spread, q_present, q_absent):
    """Mean over all entries."""
    total, count = 0.0, 0
    for row, states in zip(logits, labels, strict=True):
        for g, z in zip(row, states, strict=True):
            f = 1 / (1 + math.exp(-g))
            count += 1
            if z == 1:
                total += -math.log(f)
            elif z == 0:
                total += -math.log(1 - f)
            else:
                k = 1 / (1 + math.exp(-(slope * f + offset)))
                v = math.exp(-((f - center) ** 2) / (2 * spread**2))
                present = (1 - f**q_present) / q_present
                absent = (1 - (1 - f) ** q_absent) / q_absent
                total += v * (k * present + (1 - k) * absent)
    return total / count
