"""Resizing images and maps by the formulas, one target cell after another."""

from __future__ import annotations

from collections.abc import Callable
from math import floor

Grid = list[list[float]]


def bilinear(source: Grid, height: int, width: int) -> Grid:
    """Half-pixel centres: target cell i looks at (i + ½)·from/to − ½ of the source, held at the edges."""
    down, across = len(source) / height, len(source[0]) / width
    return [
        [_sample(source, (i + 0.5) * down - 0.5, (j + 0.5) * across - 0.5) for j in range(width)] for i in range(height)
    ]


def _sample(source: Grid, y: float, x: float) -> float:
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = floor(y), floor(x)
    bottom, right = min(top + 1, len(source) - 1), min(left + 1, len(source[0]) - 1)
    dy, dx = y - top, x - left
    upper = (1 - dx) * source[top][left] + dx * source[top][right]
    lower = (1 - dx) * source[bottom][left] + dx * source[bottom][right]
    return (1 - dy) * upper + dy * lower


def bicubic_kernel(x: float) -> float:
    """Keys' cubic with a = −½."""
    x = abs(x)
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    if x < 2:
        return ((-0.5 * x + 2.5) * x - 4) * x + 2
    return 0.0


def antialiased_row(
    row: list[float], start: float, stop: float, size: int, kernel: Callable[[float], float] = bicubic_kernel
) -> list[float]:
    """`size` values that look at [start, stop) of a row; when shrinking, the kernel is as wide as a target pixel."""
    scale = (stop - start) / size
    stretch = max(scale, 1.0)
    values = []
    for target in range(size):
        centre = start + (target + 0.5) * scale
        total, weights = 0.0, 0.0
        for at, value in enumerate(row):
            weight = kernel((at + 0.5 - centre) / stretch)
            total += weight * value
            weights += weight
        values.append(total / weights)
    return values


def bicubic(channel: Grid, box: tuple[float, float, float, float], height: int, width: int) -> Grid:
    """One channel of an image seen through a box (left, top, right, bottom, in pixels); nothing is rounded."""
    left, top, right, bottom = box
    across = [antialiased_row(row, left, right, width) for row in channel]
    columns = [antialiased_row([row[x] for row in across], top, bottom, height) for x in range(width)]
    return [[columns[x][y] for x in range(width)] for y in range(height)]
