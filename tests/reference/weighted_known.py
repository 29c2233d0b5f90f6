"""wNE: image by image, with the weight of its share of known labels.

Durand et al. divide the loss of an image by its number of classes; Soft Exposure, whose eq. 1 is a sum, does not.
"""

from __future__ import annotations

from reference.terms import negative_term, positive_term


def weighted_known(logits: list[list[float]], labels: list[list[int]], eps: float = 0.0, divided: bool = True) -> float:
    images = []
    for row, observed in zip(logits, labels, strict=True):
        known, total = 0, 0.0
        for g, z in zip(row, observed, strict=True):
            if z == 1:
                known, total = known + 1, total + positive_term(g, eps)
            elif z == 0:
                known, total = known + 1, total + negative_term(g, eps)
        images.append((-4.45 * known / len(row) + 5.45) * total / (len(row) if divided else 1))
    return sum(images) / len(images)
