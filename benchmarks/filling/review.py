"""The effect of hours of review on photos.

<!-- numbers: review -->
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from filling.results import results


def review(arguments: str, top: str) -> str:
    """Missing labels found in suggested and in random order, and the gain in mAP."""
    del arguments
    found = results("voc12-e")
    if found is None:
        return ""
    missing, first, last = found["settings"]["missing"], found["hours"][1], found["hours"][-1]

    def at(order: str, key: str, number: int) -> float:
        curves: list[list[dict[str, Any]]] = found["orders"][order]
        return fmean(curve[number][key] for curve in curves)

    labels = [f"{at(order, 'labels', 1):,.0f}" for order in ("suggested", "random")]
    scores = [f"{at('suggested', 'mAP', number):.1f}" for number in (-1, 0)]
    return f"""On [photos]({top}benchmarks/voc12.md) of VOC 2012 with one label each, {first:g} hours of simulated
review find {labels[0]} of {missing:,} missing labels in the order of `tagfill suggest`, and {labels[1]} in random
order. After {last:g} hours, retraining reaches {scores[0]} test mAP instead of {scores[1]}; complete labels reach
{fmean(found["full"]):.1f}. Means of {found["settings"]["seeds"]} seeds."""
