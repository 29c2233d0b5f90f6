"""Average precision of one class from the definition: precision times the gain of recall at every distinct score."""

from __future__ import annotations


def average_precision(scores: list[float], labels: list[int]) -> float:
    known = [(score, label) for score, label in zip(scores, labels, strict=True) if label != -1]
    positives = sum(1 for _, label in known if label == 1)
    if positives == 0:
        return float("nan")
    area, recall_before = 0.0, 0.0
    for threshold in sorted({score for score, _ in known}, reverse=True):
        chosen = [label for score, label in known if score >= threshold]
        hits = sum(1 for label in chosen if label == 1)
        recall = hits / positives
        area += (recall - recall_before) * hits / len(chosen)
        recall_before = recall
    return area
