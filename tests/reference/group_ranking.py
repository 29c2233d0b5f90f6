"""ZLPR and the two-way loss, written from their equations."""

from __future__ import annotations

import math


def _groups(logits, labels, unknown_as):
    present = [g for g, z in zip(logits, labels, strict=True) if z == 1]
    absent = [g for g, z in zip(logits, labels, strict=True) if z == 0 or (z == -1 and unknown_as == "absent")]
    return present, absent


def zlpr(logits, labels, unknown_as):
    """Mean over images."""
    total = 0.0
    for row, states in zip(logits, labels, strict=True):
        present, absent = _groups(row, states, unknown_as)
        inside = 1 + sum(math.exp(g) for g in absent) + sum(math.exp(-g) for g in present)
        inside += sum(math.exp(n - p) for n in absent for p in present)
        total += math.log(inside)
    return total / len(logits)


def two_way(logits, labels, unknown_as, positive_temperature, negative_temperature):
    """Mean over images with both kinds of labels, plus mean over classes with both."""
    total = 0.0
    columns = (list(zip(*logits, strict=True)), list(zip(*labels, strict=True)))
    for values, states in ((logits, labels), columns):
        found = []
        for row, row_states in zip(values, states, strict=True):
            present, absent = _groups(row, row_states, unknown_as)
            if present and absent:
                low = sum(math.exp(-g / positive_temperature) for g in present) ** positive_temperature
                high = sum(math.exp(g / negative_temperature) for g in absent) ** negative_temperature
                found.append(math.log(1 + low * high))
        total += sum(found) / max(len(found), 1)
    return total
