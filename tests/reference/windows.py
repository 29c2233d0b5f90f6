"""Which cells of a map of the whole image a crop shows: edges rounded half up, at least one cell, inside the map."""

from __future__ import annotations

from fractions import Fraction
from math import floor


def half_up(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


def window(start: float, stop: float, size: int) -> tuple[int, int]:
    first = min(max(half_up(Fraction(start) * size), 0), size - 1)
    last = half_up(Fraction(stop) * size)
    if last < first + 1:
        last = first + 1
    if last > size:
        last = size
    return first, last
