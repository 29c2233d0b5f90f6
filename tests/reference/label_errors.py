"""Doubted annotations, from the formulas: the likelihood of the noise model, thresholds, numbers and order."""

from __future__ import annotations

from math import exp, floor, log, sqrt
from statistics import mean, median

from reference.terms import sigmoid

Table = list[list[float]]
Pair = tuple[int, int]


def objective(
    logits: Table,
    labels: list[list[int]],
    slope: float,
    offset: list[float],
    wrong: list[float],
    missed: float,
    shared: float = 3.0,
) -> float:
    """Log-likelihood of what is tagged and what is not, and the priors of slope, offsets and error rates."""
    total = 0.0
    for row, known in zip(logits, labels, strict=True):
        for z, label, b, w in zip(row, known, offset, wrong, strict=True):
            theta = sigmoid(slope * z + b)
            tag = (1 - missed) * theta + w * (1 - theta)
            total += log(tag if label == 1 else 1 - tag)
    center, rate = mean(offset), mean(wrong)
    total -= 2 * sum((b - center) ** 2 for b in offset) + 1e-3 * (slope - 1) ** 2 / 2
    return total + shared * sum(log(w / rate) for w in wrong)


def doubted_tags(
    logits: Table,
    labels: list[list[int]],
    slope: float,
    offset: list[float],
    wrong: list[float],
    missed: float,
    hard: float = 0.5,
) -> tuple[list[Pair], dict[Pair, float]]:
    """Doubted tags, most suspicious first, and the suspicion of every tag; all classes have enough evidence."""
    images, classes = range(len(logits)), range(len(offset))
    tags = [(i, c) for i in images for c in classes if labels[i][c] == 1]
    absent = {
        (i, c): (1 - sigmoid(slope * logits[i][c] + offset[c]))
        / ((1 - missed) * sigmoid(slope * logits[i][c] + offset[c]))
        for i, c in tags
    }  # fmt: skip
    odds = {(i, c): wrong[c] * absent[i, c] for i, c in tags}
    replaced = {}
    for i, c in tags:
        free = [sigmoid(slope * logits[i][k] + offset[k]) for k in classes if labels[i][k] != 1]
        if free:
            replaced[i, c] = log(sum(theta / (missed * theta + 1 - theta) for theta in free))
    center = mean(replaced.values())
    suspicion = {
        (i, c): log(sqrt(mean(wrong) * wrong[c]) * absent[i, c]) + replaced.get((i, c), center) - center
        for i, c in tags
    }
    expected = sum(o / (1 + o) for o in odds.values())
    below = 0
    for c in classes:
        middle = median(logits[i][c] for i in images if labels[i][c] != 1)
        below += 2 * sum(1 for i in images if labels[i][c] == 1 and logits[i][c] < middle)
    threshold = [mean(sigmoid(logits[i][c]) for i in images if labels[i][c] != 1) for c in classes]
    number = floor(max((expected - hard * below) / (1 - hard) - sqrt(expected), 0))
    candidates = [(i, c) for i, c in tags if sigmoid(logits[i][c]) <= threshold[c]]
    return sorted(candidates, key=lambda pair: (-suspicion[pair], pair))[:number], suspicion


def doubted_absent(
    logits: Table, labels: list[list[int]], slope: float, offset: list[float], wrong: list[float], missed: float
) -> list[Pair]:
    """Doubted annotations "absent", most suspicious first."""
    images, classes = range(len(logits)), range(len(offset))
    absent = [(i, c) for i in images for c in classes if labels[i][c] == 0]
    score = {(i, c): slope * logits[i][c] + offset[c] + log(missed) - log(1 - wrong[c]) for i, c in absent}
    expected = sum(1 / (1 + exp(-s)) for s in score.values())
    threshold = [mean(sigmoid(logits[i][c]) for i in images if labels[i][c] == 1) for c in classes]
    candidates = [(i, c) for i, c in absent if sigmoid(logits[i][c]) >= threshold[c]]
    return sorted(candidates, key=lambda pair: (-score[pair], pair))[: floor(max(expected - sqrt(expected), 0))]
