"""Tables of the page: Markdown of rows, means over seeds, paired gains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev

FLOOR = "an"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and all others are numbers."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(values: Sequence[float]) -> str:
    """The mean over seeds, with the deviation between them; a dash for what refused its data.

    >>> shown([1.0, 2.0, 3.0])
    '2.00 ± 1.00'
    """
    if not values:
        return "–"
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def gains(values: Sequence[float], base: Sequence[float]) -> str:
    """The mean of paired differences, with its standard error.

    >>> gains([2.0, 3.0], [1.0, 1.0])
    '+1.50 ± 0.50'
    """
    apart = [value - other for value, other in zip(values, base, strict=True)]
    error = f" ± {stdev(apart) / math.sqrt(len(apart)):.2f}" if len(apart) > 1 else ""
    return f"{mean(apart):+.2f}{error}"


def gain(values: Sequence[float], base: Sequence[float], name: str, of: str = FLOOR) -> str:
    """The gain of an entry over another, by default AN, which has none over itself.

    >>> gain([2.0, 3.0], [1.0, 1.0], "en"), gain([1.0], [1.0], "an")
    ('+1.50 ± 0.50', '–')
    """
    return "–" if name == of else gains(values, base)
