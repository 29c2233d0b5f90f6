"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from typing import Any


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, sizes = results["machine"], results["sizes"]
    return f"""# The demonstration

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}).

The result of `tagfill demo`: scenes, {sizes["train"]} training images with one known label each, {sizes["val"]}
validation images with complete labels, which chose the epoch, {sizes["test"]} test images. A `cam` head on cached
features, 25 epochs, one seed: it shows what the tool does, not which method is best. See [another page](learning.md)
for five seeds and all methods.

{table(results)}

The gap is the difference between `an`, which treats unknown labels as absent, and the best entry that was trained with
all labels; a boost helps `full` too. Annotation is the cost of the training labels at 1 s per label and 1.4 s per
point. Recovered P and R are the precision and recall of predictions for hidden training labels.

![Three test scenes with class maps of the three most confident labels](../images/heatmaps.jpg)

The first three test scenes with exactly three classes, and the three most confident labels of the `ll-r:boost=5` model
with their class maps. It was trained on one label per image, without any location.
"""


def table(results: dict[str, Any]) -> str:
    """The leaderboard."""
    head = "| method | test mAP | gap closed | annotation | recovered P | recovered R | notes |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---|", *(row(one) for one in results["rows"])])


def row(one: dict[str, Any]) -> str:
    cells = [
        f"`{one['method']}`",
        f"{one['test_mAP']:.2f}",
        f"{one['gap_closed']:.0%}",
        duration(one["annotation_seconds"]),
        share(one["recovered_precision"]),
        share(one["recovered_recall"]),
        one["note"] or "defaults",
    ]
    return f"| {' | '.join(cells)} |"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
