"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from typing import Any

LIMIT_MB = 1000


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, near = results["machine"], results["neighbours"]
    worst = max(case["anonymous_mb"] for case in results["heatmaps"])
    verdict = "within" if worst < LIMIT_MB else "above"
    return f"""---
orphan: true
---
# Memory: heatmaps on disk, neighbors

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}). Each measurement is a fresh process with one thread; times are
medians over steps.

## Heatmaps on disk

80 classes, {results["heatmaps"][0]["images"]:,} images, batches of 64, random crops. A step is G×G×1280 features →
`cam` head → loss → backward → Adam → memory, with G half of W. `an`, `an+scl` and the heatmaps alone (read and updated
without a model) take turns; both kinds of steps compute class maps.

| W | file | creation | steps of `an` | steps of `an+scl` | heatmaps alone | wait at checkpoint | anonymous memory |
|---|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(map(heatmaps, results["heatmaps"]))}

{chr(10).join(map(pace, results["heatmaps"]))}

Anonymous memory is the peak memory of the process beyond the interpreter, its imports and the features: at most
{worst:.0f} MB, {verdict} the limit of {LIMIT_MB} MB. The file itself is in the page cache as far as it fits.

## Nearest neighbors

{near["queries"]:,} queries against {near["images"]:,} × 1,280 features, 10 neighbors, exact, one thread.

| | seconds | memory beyond the features |
|---|---:|---:|
| Tagfill | {near["seconds"]:.1f} | {near["mb"]:.0f} MB |
| scikit-learn, brute force | {near["sklearn_seconds"]:.1f} | {near["sklearn_mb"]:.0f} MB |

They agree in {100 * near["agreement"]:.3f} % of the neighbors.

## Setup of SE

From given features: scaling, class prototypes and distances, ten nearest neighbors per image. The search grows with the
square of the number of images. "Temperatures" is the cost for a step of 64 images.

| images | seconds | per image | peak memory | kept | temperatures |
|---|---:|---:|---:|---:|---:|
{chr(10).join(map(setup, results["setup"]))}
"""


def pace(case: dict[str, Any]) -> str:
    """A sentence about whether heatmaps keep up with training."""
    rate = case["samples_per_second"]
    longer, served = rate["without"] / rate["with"], rate["alone"] / rate["without"]
    found = "they keep up with training" if served >= 1 else "they do not keep up with training"
    return (
        f"At W={case['size']} a step with heatmaps takes {longer:.2f} times as long as one without. Heatmaps alone "
        f"process {served:.2f} times as many images per second as training without them: {found}."
    )


def heatmaps(case: dict[str, Any]) -> str:
    rate = {name: f"{value:,.0f} images/s" for name, value in case["samples_per_second"].items()}
    cells = [
        f"{case['size']}",
        f"{case['gb']:.2f} GB",
        f"{case['make_seconds']:.0f} s",
        rate["without"],
        rate["with"],
        rate["alone"],
        f"{case['mark_seconds']:.1f} s",
        f"{case['anonymous_mb']:.0f} MB",
    ]
    return f"| {' | '.join(cells)} |"


def setup(case: dict[str, Any]) -> str:
    cells = [
        f"{case['images']:,}",
        f"{case['seconds']:.1f}",
        f"{case['ms_per_image']:.2f} ms",
        f"{case['peak_mb']:.0f} MB",
        f"{case['kept_mb']:.1f} MB",
        f"{case['temperatures_ms']:.1f} ms",
    ]
    return f"| {' | '.join(cells)} |"
