"""Running heatmaps of one image and one class, cell by cell: cut the window, mirror, resize, compare, write back."""

from __future__ import annotations

from reference.resize import Grid, bilinear
from reference.windows import window

View = tuple[tuple[float, float, float, float], bool, bool]  # left, top, right, bottom; mirrored in x, in y


def mirrored(grid: Grid, flip_x: bool, flip_y: bool) -> Grid:
    height, width = len(grid), len(grid[0])
    return [
        [grid[height - 1 - y if flip_y else y][width - 1 - x if flip_x else x] for x in range(width)]
        for y in range(height)
    ]


def read(steps: list[list[int]], view: View, height: int, width: int) -> Grid:
    """What the view shows of a heatmap in steps of 1/255, height×width."""
    (left, top, right, bottom), flip_x, flip_y = view
    x0, x1 = window(left, right, len(steps))
    y0, y1 = window(top, bottom, len(steps))
    seen = [[steps[y][x] / 255 for x in range(x0, x1)] for y in range(y0, y1)]
    return bilinear(mirrored(seen, flip_x, flip_y), height, width)


def update(steps: list[list[int]], view: View, maps: Grid, momentum: float) -> Grid:
    """The heatmap after a visit, in steps that are not rounded yet; cells that the view does not show stay."""
    (left, top, right, bottom), flip_x, flip_y = view
    x0, x1 = window(left, right, len(steps))
    y0, y1 = window(top, bottom, len(steps))
    seen = bilinear(mirrored(maps, flip_x, flip_y), y1 - y0, x1 - x0)
    result = [[float(value) for value in row] for row in steps]
    for y in range(y0, y1):
        for x in range(x0, x1):
            result[y][x] = momentum * steps[y][x] + (1 - momentum) * 255 * seen[y - y0][x - x0]
    return result
