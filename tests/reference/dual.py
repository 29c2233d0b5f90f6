"""The dual head by its formulas, one class and one cell at a time."""

from __future__ import annotations

import math


def cosine(one: list[float], other: list[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / math.sqrt(sum(a * a for a in one)) / math.sqrt(sum(b * b for b in other))


def weights(cells: list[list[float]], positive: list[float], sharpness: float) -> list[float]:
    """The softmax over cells of the cosines with the positive vector."""
    powers = [math.exp(sharpness * cosine(cell, positive)) for cell in cells]
    return [power / sum(powers) for power in powers]


def probability(
    cells: list[list[float]], positive: list[float], negative: list[float], scale: float, sharpness: float
) -> float:
    """From the pair of aggregated similarities, by a softmax over the two."""
    shares = weights(cells, positive, sharpness)
    present = sum(share * cosine(cell, positive) for share, cell in zip(shares, cells, strict=True))
    absent = sum(share * cosine(cell, negative) for share, cell in zip(shares, cells, strict=True))
    up, down = math.exp(scale * present), math.exp(scale * absent)
    return up / (up + down)


def class_map(cells: list[list[float]], positive: list[float], negative: list[float], scale: float) -> list[float]:
    return [scale * (cosine(cell, positive) - cosine(cell, negative)) for cell in cells]
