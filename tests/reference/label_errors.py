"""Doubted annotations, from the formulas: the likelihood of the noise model, thresholds, numbers and order."""

from __future__ import annotations

from math import exp, floor, log, sqrt
from statistics import mean, median

from reference.terms import sigmoid

Table = list[list[float]]
Pair = tuple[int, int]


def objective(
    logits: Table, labels: list[list[int]], slope: float, offset: list[float], wrong: float, missed: float
) -> float:
    """Log-likelihood of what is tagged and what is not, and the priors of slope and offsets."""
    total = 0.0
    for row, known in zip(logits, labels, strict=True):
        for z, label, b in zip(row, known, offset, strict=True):
            theta = sigmoid(slope * z + b)
            tag = (1 - missed) * theta + wrong * (1 - theta)
            total += log(tag if label == 1 else 1 - tag)
    center = mean(offset)
    return total - sum((b - center) ** 2 for b in offset) / 2 - 1e-3 * (slope - 1) ** 2 / 2


def doubted_tags(
    logits: Table,
    labels: list[list[int]],
    slope: float,
    offset: list[float],
    wrong: float,
    missed: float,
    hard: float = 0.4,
    weight: float = 0.5,
) -> tuple[list[Pair], dict[Pair, float]]:
    """Doubted tags, most suspicious first, and the suspicion of every tag; all classes have enough evidence."""
    images, classes = range(len(logits)), range(len(offset))
    tags = [(i, c) for i in images for c in classes if labels[i][c] == 1]
    odds = {
        (i, c): wrong * (1 - sigmoid(slope * logits[i][c] + offset[c]))
        / ((1 - missed) * sigmoid(slope * logits[i][c] + offset[c]))
        for i, c in tags
    }  # fmt: skip
    strongest = {}
    for i, c in tags:
        if free := [logits[i][k] for k in classes if k != c and labels[i][k] != 1]:
            strongest[i, c] = max(free)
    center = mean(strongest.values())
    suspicion = {pair: log(odds[pair]) + weight * (strongest.get(pair, center) - center) for pair in tags}
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
    logits: Table, labels: list[list[int]], slope: float, offset: list[float], wrong: float, missed: float
) -> list[Pair]:
    """Doubted annotations "absent", most suspicious first."""
    images, classes = range(len(logits)), range(len(offset))
    absent = [(i, c) for i in images for c in classes if labels[i][c] == 0]
    score = {(i, c): slope * logits[i][c] + offset[c] + log(missed) - log(1 - wrong) for i, c in absent}
    expected = sum(1 / (1 + exp(-s)) for s in score.values())
    threshold = [mean(sigmoid(logits[i][c]) for i in images if labels[i][c] == 1) for c in classes]
    candidates = [(i, c) for i, c in absent if sigmoid(logits[i][c]) >= threshold[c]]
    return sorted(candidates, key=lambda pair: (-score[pair], pair))[: floor(max(expected - sqrt(expected), 0))]
