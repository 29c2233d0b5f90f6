"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from statistics import median
from typing import Any

TARGET = 10  # times as fast as scikit-learn
PREVALENCE = 0.01


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, seconds, other = results["machine"], results["seconds"], results["torchmetrics"]
    guessed = other["seconds"] * results["classes"] / other["classes"]
    times = results["times_scikit_learn"]
    reached = "within" if median(times) >= TARGET else "short of"
    return f"""# Speed of average precision

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}). {results["images"]:,} images, {results["classes"]:,} classes,
random single-precision scores, {PREVALENCE:.0%} positives, complete labels. CPU seconds of one thread; the
implementations take turns on the same blocks of classes.

| | CPU seconds | relative to sorting |
|---|---:|---:|
| sorting the scores of each class | {seconds["sort"]:.1f} | 1.0 |
| **Tagfill** | {seconds["tagfill"]:.1f} | {seconds["tagfill"] / seconds["sort"]:.1f} |
| scikit-learn, class by class | {seconds["scikit-learn"]:.1f} | {seconds["scikit-learn"] / seconds["sort"]:.1f} |
| torchmetrics, extrapolated from {other["classes"]} classes | {guessed:.0f} | {guessed / seconds["sort"]:.1f} |

Tagfill is {median(times):.1f} times as fast as scikit-learn ({min(times):.1f}–{max(times):.1f} over blocks;
{reached} the target of {TARGET}), and its values differ by at most {results["largest_difference"]:.0e}.
All classes in one call take {results["whole"]:.1f} seconds. Classes are processed in blocks: that call needs at most
{results["tagfill_beyond_the_arrays_mb"]:,.0f} MB beyond the {results["arrays_mb"]:,.0f} MB of scores and labels.
"""
