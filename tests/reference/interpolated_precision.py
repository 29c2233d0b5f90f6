"""Average precision by other definitions, from a walk down the ranking."""

from __future__ import annotations


def points(scores: list[float], labels: list[int]) -> list[tuple[float, float]]:
    """Recall and precision of "score ≥ v" for each distinct score v, highest first."""
    known = [(s, z) for s, z in zip(scores, labels, strict=True) if z != -1]
    positives = sum(z == 1 for _, z in known)
    found = []
    for v in sorted({s for s, _ in known}, reverse=True):
        above = [z for s, z in known if s >= v]
        found.append((sum(z == 1 for z in above) / positives, sum(z == 1 for z in above) / len(above)))
    return found


def voc12(scores: list[float], labels: list[int]) -> float:
    area, before = 0.0, 0.0
    curve = points(scores, labels)
    for at, (recall, _) in enumerate(curve):
        area += (recall - before) * max(precision for _, precision in curve[at:])
        before = recall
    return area


def voc07(scores: list[float], labels: list[int]) -> float:
    total = 0.0
    for tenth in range(11):
        total += max(precision for recall, precision in points(scores, labels) if recall >= tenth / 10 - 1e-12)
    return total / 11


def rank(scores: list[float], labels: list[int]) -> float:
    """Tied images one after the other, the later one first."""
    ranking = sorted((i for i, z in enumerate(labels) if z != -1), key=lambda i: (scores[i], i), reverse=True)
    precisions, hits = [], 0
    for place, i in enumerate(ranking, start=1):
        if labels[i] == 1:
            hits += 1
            precisions.append(hits / place)
    return sum(precisions) / len(precisions)
