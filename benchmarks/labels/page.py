"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from typing import Any

LIMIT_MB, LIMIT_MS = 600, 10


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    loads, workers, check = results["load"], results["workers"], results["check"]
    machine = results["machine"]
    pairs = {shuffled: [load for load in loads if load["shuffled"] is shuffled] for shuffled in (False, True)}
    growth = {
        shuffled: (large["mb"] - small["mb"]) / (large["rows"] - small["rows"]) * 1e6
        for shuffled, (small, large) in pairs.items()
    }
    worst = max(loads, key=lambda load: load["peak_mb"])
    batch = max(load["batch_ms"] for load in loads)
    dense = loads[0]["images"] * loads[0]["classes"] / 1e6
    everybody = workers["workers"] + 1
    return f"""---
orphan: true
---
# Labels at scale

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}) that was also doing other work: treat the times as orders of
magnitude. Memory is the private memory of a fresh process beyond the interpreter and its imports, in millions of bytes;
the peak is sampled every 50 ms.

## From Parquet to a label matrix

{loads[0]["images"]:,} images, {loads[0]["classes"]:,} classes. "Shuffled" rows are in random order and have times; the
others are in the order of the images and have no times.

| rows | open | labels | rows per second | memory after | peak memory | matrix | 256 rows dense | with an overlay |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(line(load) for load in loads)}

The highest peak is {worst["peak_mb"]:.0f} MB ({verdict(worst["peak_mb"] < LIMIT_MB)} the limit of {LIMIT_MB} MB), and
the slowest batch takes {batch:.2f} ms ({verdict(batch < LIMIT_MS)} the limit of {LIMIT_MS} ms). The table of images
takes {loads[1]["open_mb"]:.0f} MB of this memory. From {loads[0]["rows"]:,} to {loads[1]["rows"]:,} rows, memory in use
grows by {growth[False]:.1f} MB per million rows (shuffled: {growth[True]:.1f} MB). A dense matrix would take
{dense:,.0f} MB.

## Worker processes

{workers["workers"]} forked workers create all {workers["batches"]:,} dense batches of an epoch in random order.

| | MB |
|---|---:|
| label matrix | {workers["matrix_mb"]:.0f} |
| proportional set size of the single process before | {workers["alone_pss_mb"]:.0f} |
| proportional set size of all {everybody} processes at the end | {workers["together_pss_mb"]:.0f} |
| private memory of a worker at the end | {workers["worker_private_mb"]:.0f} |

## Identities and validation

On {check["rows"]:,} shuffled rows; {check["errors"]} errors found.

| | time | peak memory |
|---|---:|---:|
| the three identities | {check["identities_seconds"]:.1f} s | {check["identities_peak_mb"]:.0f} MB |
| validation | {check["validate_seconds"]:.1f} s | {check["validate_peak_mb"]:.0f} MB |
"""


def line(load: dict[str, Any]) -> str:
    cells = [
        f"{load['rows']:,}{' shuffled' if load['shuffled'] else ''}",
        f"{load['open_seconds']:.1f} s",
        f"{load['labels_seconds']:.1f} s",
        f"{load['rows_per_second']:,.0f}",
        f"{load['mb']:.0f} MB",
        f"{load['peak_mb']:.0f} MB",
        f"{load['matrix_mb']:.0f} MB",
        f"{load['batch_ms']:.2f} ms",
        f"{load['overlay_batch_ms']:.2f} ms",
    ]
    return f"| {' | '.join(cells)} |"


def verdict(holds: bool) -> str:
    return "within" if holds else "above"
