"""The page of the benchmark, from its results alone."""

from __future__ import annotations

from typing import Any


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, sizes = results["machine"], results["sizes"]
    return f"""# The demonstration

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine of {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}).

What `tagfill demo` ends with: scenes, {sizes["train"]} training images with one known label each, {sizes["val"]}
validation images with complete labels, which chose the epoch, {sizes["test"]} test images. A `cam` head on cached
features, 25 epochs, one seed: it shows what the tool does, not which method is best. [Five seeds and all
methods](learning.md) are another page.

{table(results)}

The gap is that between `an`, which reads unknown as absent, and `full`, which was given all labels. Annotation is what
the training labels would cost at 1 s a label and 1.4 s a point. Recovered P and R are precision and recall of what is
called present among training labels that were not given.

![Three test scenes, and class maps of the three labels that the model is surest of](../images/heatmaps.jpg)

The first three test scenes that show exactly three classes, and the three labels that the model of `ll-r:boost=5` is
surest of, with their class maps. It was trained on one label an image, and never saw where anything is.
"""


def table(results: dict[str, Any]) -> str:
    """The leaderboard."""
    head = "| method | test mAP | gap closed | annotation | recovered P | recovered R | what is particular |"
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
