"""What stands in the cells of the page's tables: means over seeds, paired gains."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev

from filling.results import gain as gains
from filling.results import table

__all__ = ["gain", "shown", "table"]


def shown(values: Sequence[float]) -> str:
    """The mean over seeds, with the deviation between them; a dash for what was not run.

    >>> shown([1.0, 2.0, 3.0])
    '2.00 ± 1.00'
    """
    if not values:
        return "–"
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def gain(values: Sequence[float], base: Sequence[float], name: str, of: str = "an") -> str:
    """The gain of an entry over another, by default AN, which has none over itself."""
    return "–" if name == of or not values or len(base) < len(values) else gains(values, base)
