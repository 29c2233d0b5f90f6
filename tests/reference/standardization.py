"""Scores without the means of images and classes, in plain loops; None is a missing score."""

from __future__ import annotations

import math


def standardized(scores, *, image_effects=True, rounds=10, image_prior=1.0, class_prior=20.0):
    """Alternate the two means, then divide by the spread of each class, shrunk towards that of all."""
    images, classes = range(len(scores)), range(len(scores[0]))
    of_image, of_class = [0.0 for _ in images], [0.0 for _ in classes]
    for _ in range(rounds):
        for c in classes:
            rest = [scores[i][c] - of_image[i] for i in images if scores[i][c] is not None]
            of_class[c] = sum(rest) / max(len(rest), 1)
        if not image_effects:
            break
        counts = []
        for i in images:
            rest = [scores[i][c] - of_class[c] for c in classes if scores[i][c] is not None]
            of_image[i] = sum(rest) / (len(rest) + max(image_prior * (1 - len(rest) / len(classes)), 1e-9))
            counts.append(len(rest))
        mean = sum(n * r for n, r in zip(counts, of_image, strict=True)) / max(sum(counts), 1)
        of_image = [r - mean for r in of_image]
    left = [
        [None if scores[i][c] is None else scores[i][c] - of_class[c] - of_image[i] for c in classes] for i in images
    ]
    every = [value**2 for row in left for value in row if value is not None]
    overall = sum(every) / max(len(every), 1)
    result = [[None for _ in classes] for _ in images]
    for c in classes:
        column = [left[i][c] ** 2 for i in images if left[i][c] is not None]
        spread = math.sqrt((sum(column) + class_prior * overall) / (len(column) + class_prior))
        for i in images:
            if left[i][c] is not None:
                result[i][c] = left[i][c] / max(spread, 1e-12)
    return result


def trust(scores, known, *, prior=10.0):
    """How well tags of a class rank above its other pairs, from 0 to 1; known is 1, 0 or -1."""
    classes = range(len(scores[0]))
    shares = [[] for _ in classes]
    for c in classes:
        others = [row[c] for row, labels in zip(scores, known, strict=True) if labels[c] != 1]
        for row, labels in zip(scores, known, strict=True):
            if labels[c] == 1:
                below = sum(1.0 if other < row[c] else 0.5 if other == row[c] else 0.0 for other in others)
                shares[c].append(below / len(others) if others else 1.0)
    every = [share for of_class in shares for share in of_class]
    if not every:
        return [1.0 for _ in classes]
    mean = sum(every) / len(every)
    return [max(0.0, 2 * (sum(s) + prior * mean) / (len(s) + prior) - 1) for s in shares]
