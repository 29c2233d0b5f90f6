"""FixMatch for several labels, entry by entry."""

from __future__ import annotations

import math


def fixmatch(
    weak: list[list[float]],
    strong: list[list[float]],
    labels: list[list[int]],
    positive: float,
    negative: float,
    unlabeled_images: bool,
) -> tuple[float, float, list[list[int]]]:
    """The unsupervised term, the supervised one, and the pseudo-labels."""
    total, count, known_total, known = 0.0, 0, 0.0, 0
    pseudo = [[-1] * len(row) for row in labels]
    for n, row in enumerate(labels):
        for c, label in enumerate(row):
            if label != -1:
                probability = 1 / (1 + math.exp(-weak[n][c]))
                known_total += -math.log(probability if label == 1 else 1 - probability)
                known += 1
                continue
            if unlabeled_images and any(other != -1 for other in row):
                continue
            sure = 1 / (1 + math.exp(-weak[n][c]))
            said = 1 / (1 + math.exp(-strong[n][c]))
            if sure >= positive:
                pseudo[n][c], total, count = 1, total - math.log(said), count + 1
            elif sure <= negative:
                pseudo[n][c], total, count = 0, total - math.log(1 - said), count + 1
    return total / max(1, count), known_total / max(1, known), pseudo
