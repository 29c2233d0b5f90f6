"""Cell labels by painting every place into a fine raster of the image and counting what each cell of the view shows."""

from __future__ import annotations

from fractions import Fraction

Place = tuple[str, list[list[bool]]]


def painted_box(left: int, top: int, right: int, bottom: int, raster: int) -> list[list[bool]]:
    return [[left <= x < right and top <= y < bottom for x in range(raster)] for y in range(raster)]


def covered_cells(
    painted: list[list[bool]],
    crop: tuple[int, int, int, int],
    flip_x: bool,
    flip_y: bool,
    grid: tuple[int, int],
    min_cover: Fraction,
) -> set[tuple[int, int]]:
    """Cells of the view, of which the painted pixels take more than nothing and at least `min_cover`.

    Crop edges and cell edges lie on edges of pixels.
    """
    left, top, right, bottom = crop
    rows, columns = grid
    tall, wide = (bottom - top) // rows, (right - left) // columns
    counts: dict[tuple[int, int], int] = {}
    for y in range(top, bottom):
        for x in range(left, right):
            if painted[y][x]:
                row, column = (y - top) // tall, (x - left) // wide
                row = rows - 1 - row if flip_y else row
                column = columns - 1 - column if flip_x else column
                counts[row, column] = counts.get((row, column), 0) + 1
    return {cell for cell, count in counts.items() if Fraction(count, tall * wide) >= min_cover}
