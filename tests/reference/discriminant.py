"""Linear discriminants of pooled features, with sums over images and classes as they are written.

w_c ∝ (Σ + λ s I)⁻¹ (m_c − m),   s = tr Σ / D,   logits with a standard deviation of 1 and a mean of −2
"""

from __future__ import annotations

import numpy as np


def mean(x, weights):
    total = np.zeros(x.shape[1])
    for row, weight in zip(x, weights, strict=True):
        total += weight * row
    return total / sum(weights)


def covariance(x):
    center, total = mean(x, [1] * len(x)), np.zeros((x.shape[1], x.shape[1]))
    for row in x:
        total += np.outer(row - center, row - center)
    return total / len(x)


def line(x, direction, shrinkage):
    """w and b of a class: x are the images that the covariance is that of."""
    around = covariance(x)
    if np.linalg.norm(direction) <= 1e-4 * np.sqrt(np.trace(around)):  # nothing but rounding
        return 0 * direction, -2.0
    weight = np.linalg.solve(around + shrinkage * np.trace(around) / len(around) * np.eye(len(around)), direction)
    logits = [float(row @ weight) for row in x]
    spread = np.sqrt(np.mean([(logit - np.mean(logits)) ** 2 for logit in logits]))
    return weight / spread, -2 - np.mean(logits) / spread


def first_round(x, labels, *, tags_only, shrinkage=5.0):
    """w and b of each class; only images with a known label take part, a class without a tag has w = 0 and b = −2."""
    annotated = [row for row in range(len(x)) if (labels[row] != -1).any()]
    x, labels = x[annotated], labels[annotated]
    found = []
    for column in labels.T:
        others = np.ones(len(x)) if tags_only or not (column == 0).any() else column == 0
        shown = (column == 1).any()
        found.append(line(x, mean(x, column == 1) - mean(x, others), shrinkage) if shown else (0 * x[0], -2.0))
    return found


def targets(scores, labels, *, tags_only):
    """Probabilities that images show classes, from the calibrated scores of models that do not know them.

    With tags only, a score s is the probability that a tag was given, and q the share of tags that were.
    """
    given = [s for s, z in zip(scores.flat, labels.flat, strict=True) if z == 1]
    q = sum(given) / len(given)
    found = np.empty(labels.shape)
    for place, z in np.ndenumerate(labels):
        s = scores[place]
        corrected = min((1 - q) / q * s / (1 - s), 1.0) if tags_only else s
        found[place] = {1: 1.0, 0: 0.0, -1: corrected}[int(z)]
    return found


def second_round(x, soft, labels, shrinkage=1.0):
    """w and b of each class: all images take part, weighted by the probability that they show it."""
    center, found = mean(x, [1] * len(x)), []
    for weights, column in zip(soft.T, labels.T, strict=True):
        shown = (column == 1).any()
        found.append(line(x, mean(x, weights) - center, shrinkage) if shown else (0 * center, -2.0))
    return found


def cells_round(maps, labels, first, sample, shrinkage=1.0):
    """w and b of each class; m_c is the mean over those cells of tagged images where the first round's map is highest.

    maps are N×D×H×W features of images with a label, sample some of their cells (n×D).
    """
    center, found = mean(sample, [1] * len(sample)), []
    for c, (weight, bias) in enumerate(first):
        chosen = []
        for image, row in zip(maps, labels, strict=True):
            if row[c] == 1:
                cells = sorted(image.reshape(len(image), -1).T, key=lambda cell: -(cell @ weight + bias))
                chosen.append(np.mean(cells[: max(1, round(0.1 * len(cells)))], axis=0))
        found.append(
            line(sample, mean(np.array(chosen), [1] * len(chosen)) - center, shrinkage)
            if chosen
            else (0 * center, -2.0)
        )
    return found
