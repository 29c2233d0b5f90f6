"""ROLE's table with a few classes per image, entry by entry: its half of the loss, its gradient, Adam over all rows."""

from __future__ import annotations

from math import log

from reference.terms import sigmoid

REST = log(1e-5 / (1 - 1e-5))  # of a class that is not kept

Table = list[list[float]]


def shown(start: list[float], moved: dict[int, float] | None) -> list[float]:
    """The estimates of an image: its start before the first visit, then those that are kept."""
    return start if moved is None else [moved.get(label, REST) for label in range(len(start))]


def chosen(labels: list[int], logits: list[float], count: int) -> list[int]:
    """The annotated classes, then the likeliest; the first of equals."""
    order = sorted(range(len(labels)), key=lambda label: (labels[label] != 1, -sigmoid(logits[label]), label))
    return order[:count]


def gradient(estimates: Table, labels: list[list[int]], logits: Table, expected: float) -> Table:
    """Of ½ L'(q | f) by the estimates."""
    images, classes = len(estimates), len(estimates[0])
    excess = sum(sigmoid(value) for row in estimates for value in row) / images - expected
    slopes = []
    for row, observed, predicted in zip(estimates, labels, logits, strict=True):
        slope = []
        for value, z, g in zip(row, observed, predicted, strict=True):
            q = sigmoid(value)
            taught = (q - sigmoid(g)) + (q - 1 if z == 1 else 0.0)
            slope.append(0.5 * (taught / (images * classes) + 2 * excess / classes**2 * q * (1 - q) / images))
        slopes.append(slope)
    return slopes


def trained(
    start: Table, labels: list[list[int]], visits: list[tuple[list[int], Table]], count: int, expected: float, lr: float
) -> Table:
    """What the table shows of every image after these visits, each a batch of images and the classifier's logits."""
    kept: list[dict[int, float] | None] = [None] * len(start)
    moments: list[dict[int, tuple[float, float]]] = [{} for _ in start]
    for time, (images, logits) in enumerate(visits, start=1):
        estimates = [shown(start[n], kept[n]) for n in images]
        slopes = dict(zip(images, gradient(estimates, [labels[n] for n in images], logits, expected), strict=True))
        for n, predicted in zip(images, logits, strict=True):
            if kept[n] is None:
                kept[n] = {label: start[n][label] for label in chosen(labels[n], predicted, count)}
        for n, moved in enumerate(kept):
            for label in moved or {}:
                g = slopes[n][label] if n in slopes else 0.0
                first, second = moments[n].get(label, (0.0, 0.0))
                first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
                moments[n][label] = first, second
                spread = (second / (1 - 0.999**time)) ** 0.5
                moved[label] -= lr * first / (1 - 0.9**time) / (spread + 1e-8)
    return [shown(row, moved) for row, moved in zip(start, kept, strict=True)]
