"""Results as benchmarks wrote them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


@cache
def results(name: str) -> dict[str, Any] | None:
    """The results of a benchmark, or None where it was not run."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def mean(values: list[float]) -> str:
    """To two digits.

    >>> mean([1.0, 2.0])
    '1.50'
    """
    return f"{fmean(values):.2f}"


def gain(values: Sequence[float], floor: Sequence[float]) -> str:
    """Over another entry, seed by seed: the mean, and the standard error of that mean.

    >>> gain([3.0, 4.0], [1.0, 3.0])
    '+1.50 ± 0.50'
    """
    gains = [mine - other for mine, other in zip(values, floor, strict=True)]
    error = f" ± {stdev(gains) / math.sqrt(len(gains)):.2f}" if len(gains) > 1 else ""
    return f"{fmean(gains):+.2f}{error}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """In Markdown, numbers to the right of the first columns.

    >>> print(table(["method", "mAP"], [["`an`", "62.78"]]))
    | method | mAP |
    |---|---:|
    | `an` | 62.78 |
    """
    rule = "|" + "---|" * left + "---:|" * (len(head) - left)
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])
