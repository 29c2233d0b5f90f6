"""Prototypes, distances and pseudo-labels, cell by cell."""

from __future__ import annotations

import math

Vector = list[float]


def prototypes(features: list[list[Vector]], marked: list[tuple[int, int, int]], classes: int) -> list[Vector | None]:
    """Mean feature of the marked (image, class, cell) triples of each class; features are images × cells."""
    found: list[Vector | None] = []
    for c in range(classes):
        places = [features[n][r] for n, label, r in marked if label == c]
        found.append([sum(values) / len(places) for values in zip(*places, strict=True)] if places else None)
    return found


def distance(a: Vector, b: Vector) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return 1 - product / (math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b)))


def pseudo_labels(
    features: list[list[Vector]],
    labels: list[list[int]],
    means: list[Vector | None],
    positive: float,
    negative: float,
    unlabeled_images: bool,
) -> tuple[list[list[int]], list[list[int]]]:
    """Pseudo-labels, -1 for none, and the nearest cells."""
    found, nearest = [], []
    for cells, row in zip(features, labels, strict=True):
        found.append([-1] * len(row))
        nearest.append([0] * len(row))
        for c, label in enumerate(row):
            if means[c] is None or label != -1 or (unlabeled_images and any(other != -1 for other in row)):
                continue
            distances = [distance(cell, means[c]) for cell in cells]
            least = min(distances)
            nearest[-1][c] = distances.index(least)
            if least <= positive:
                found[-1][c] = 1
            elif least > negative:
                found[-1][c] = 0
    return found, nearest
