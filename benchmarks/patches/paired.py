"""Gains of entries that share their seeds."""

from __future__ import annotations

import math
from statistics import mean, stdev

Scores = dict[str, dict[str, list[float]]]


def gain(name: str, base: str, key: str, scores: Scores) -> tuple[float, str]:
    """The paired gain in standard errors, and as words."""
    gains = [mine - other for mine, other in zip(scores[name][key], scores[base][key], strict=True)]
    error = stdev(gains) / math.sqrt(len(gains))
    return mean(gains) / error if error else 0.0, "–" if name == base else f"{mean(gains):+.2f} ± {error:.2f}"
