"""Soft Exposure, image by image and label by label: prototypes, distances, evidence, temperatures, loss."""

from __future__ import annotations

from math import exp, sqrt
from statistics import mean, median

from reference.terms import negative_term, positive_term

Vector = list[float]


def soft_exposure(
    logits: list[Vector], labels: list[list[int]], temperature: list[Vector], weight: float, eps: float = 0.0
) -> float:
    """Sum over classes, mean over images; temperature 0 leaves an unknown label out."""
    total = 0.0
    for row, observed, softness in zip(logits, labels, temperature, strict=True):
        for g, z, t in zip(row, observed, softness, strict=True):
            if z == 1:
                total += weight * positive_term(g, eps)
            elif z == 0:
                total += negative_term(g, eps)
            elif t != 0:
                total += positive_term(g / t, eps)
    return total / len(logits)


def unit(vector: Vector) -> Vector:
    length = sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length > 0 else list(vector)


def away(a: Vector, b: Vector, kind: str) -> float:
    if kind == "euclidean":
        return sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))
    a, b = unit(a), unit(b)
    if not any(a) or not any(b):
        return 1.0
    return max(0.0, 1 - sum(x * y for x, y in zip(a, b, strict=True)))


def prototype(features: list[Vector], labels: list[list[int]], c: int, kind: str) -> Vector | None:
    shown = [unit(row) for row, observed in zip(features, labels, strict=True) if observed[c] == 1]
    if not shown:
        return None
    middle = median if kind == "median" else mean
    return [middle(column) for column in zip(*shown, strict=True)]


def class_distances(features: list[Vector], labels: list[list[int]], kind: str, distance: str) -> list[Vector]:
    psi = [prototype(features, labels, c, kind) for c in range(len(labels[0]))]
    return [[1.0 if a is None or b is None else away(a, b, distance) for b in psi] for a in psi]


def neighbors(features: list[Vector], n: int, k: int) -> list[int]:
    """The nearest other images by cosine distance, the first among equals first."""
    rows = [unit(row) for row in features]
    similar = [sum(x * y for x, y in zip(rows[n], row, strict=True)) for row in rows]
    others = [m for m in range(len(rows)) if m != n]
    return sorted(others, key=lambda m: (-similar[m], m))[:k]


def taken(distances: list[float], reduce: str) -> float | None:
    if not distances:
        return None
    return min(distances) if reduce == "min" else median(sorted(distances)[:5])


def temperatures(
    features: list[Vector],
    labels: list[list[int]],
    n: int,
    *,
    by_labels: bool,
    by_images: bool,
    k: int,
    beta: float,
    gamma: float,
    temperature: str,
    normalize: str,
    reduce: str,
    prototype: str,
    distance: str,
    uncovered: str,
) -> Vector:
    """T of every label of image n; 0 for known labels and for those left out."""
    between = class_distances(features, labels, prototype, distance)
    near = neighbors(features, n, k)
    evidence: dict[int, tuple[float, float]] = {}
    for c, z in enumerate(labels[n]):
        if z != -1:
            continue
        found = {}
        for state in (1, 0):
            d_label = taken([between[c][o] for o, y in enumerate(labels[n]) if y == state], reduce)
            apart = [away(unit(features[n]), unit(features[m]), distance) for m in near if labels[m][c] == state]
            found[state] = d_label if by_labels else None, taken(apart, reduce) if by_images else None
        if by_labels and by_images:
            covered = any(d is not None for pair in found.values() for d in pair)
        elif by_labels:
            covered = found[1][0] is not None and found[0][0] is not None  # one side alone is nothing to compare
        else:
            covered = found[1][1] is not None or found[0][1] is not None
        if not covered and uncovered == "ignore":
            continue
        combined = []
        for state in (1, 0):
            d_label, d_image = found[state]
            options = [] if d_label is None else [d_label]
            if by_images:
                options.append(1.0 if d_image is None else d_image)
            combined.append(min(options) if options else 1.0)
        evidence[c] = combined[0], combined[1]
    result = [0.0] * len(labels[n])
    top_present = max((pair[0] for pair in evidence.values()), default=0.0)
    top_absent = max((pair[1] for pair in evidence.values()), default=0.0)
    if normalize == "joint":
        top_present = top_absent = max(top_present, top_absent)
    for c, (present, absent) in evidence.items():
        present, absent = present / (top_present or 1.0), absent / (top_absent or 1.0)
        if present < absent:
            result[c] = exp(beta * (present if temperature == "inverse" else 1 - present)) + gamma
        else:
            result[c] = -exp(beta * (absent if temperature == "inverse" else 1 - absent)) + gamma
    return result
