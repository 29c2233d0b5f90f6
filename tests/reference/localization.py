"""IoA-P and mAP-loc, pixel by pixel and image by image."""

from __future__ import annotations

import math


def raised(small: list[list[float]], height: int, width: int) -> list[list[float]]:
    """Bilinear interpolation, pixels being areas, edges held."""
    rows, columns = len(small), len(small[0])
    out = []
    for y in range(height):
        v = min(max((y + 0.5) * rows / height - 0.5, 0), rows - 1)
        out.append([])
        for x in range(width):
            u = min(max((x + 0.5) * columns / width - 0.5, 0), columns - 1)
            j, k = int(v), int(u)
            below, right = min(j + 1, rows - 1), min(k + 1, columns - 1)
            top = small[j][k] * (1 - (u - k)) + small[j][right] * (u - k)
            bottom = small[below][k] * (1 - (u - k)) + small[below][right] * (u - k)
            out[-1].append(top * (1 - (v - j)) + bottom * (v - j))
    return out


def scaled(values: list[list[float]], scaling: str) -> list[list[float]]:
    if scaling == "sigmoid":
        return [[1 / (1 + math.exp(-value)) for value in row] for row in values]
    least, largest = min(map(min, values)), max(map(max, values))
    if least == largest:
        return [[0.0 for _ in row] for row in values]
    return [[(value - least) / (largest - least) for value in row] for row in values]


def ioa(small: list[list[float]], truth: list[list[bool]], threshold: float, scaling: str) -> float:
    values = scaled(raised(small, len(truth), len(truth[0])), scaling)
    area = both = 0
    for y, row in enumerate(truth):
        for x, inside in enumerate(row):
            if values[y][x] >= threshold:
                area += 1
                both += inside
    return both / area if area else 0.0


def average_precision(detections: list[tuple[float, bool]], positives: int) -> float:
    """Over distinct scores, from the highest: gain of recall times precision."""
    total, before = 0.0, 0.0
    for score in sorted({score for score, _ in detections}, reverse=True):
        taken = [right for other, right in detections if other >= score]
        recall = sum(taken) / positives
        total += (recall - before) * sum(taken) / len(taken)
        before = recall
    return total
