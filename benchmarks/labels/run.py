"""Memory and time of labels at scale; writes benchmarks/results/labels.json and docs/benchmarks/labels.md.

Each measurement is a fresh process on a generated dataset in a temporary folder.

    python benchmarks/labels/run.py           6 million rows, 1 million images, 9,600 classes; a few minutes
    python benchmarks/labels/run.py --quick   a hundredth of that, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from generate import generate

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("labels", ("annotations",))
CLASSES = 9_600
LIMIT_MB, LIMIT_MS = 600, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    images = 10_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="labels-") as folder:
        results = run(Path(folder), images)
    if quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def run(folder: Path, images: int) -> dict[str, Any]:
    rows = 6 * images
    results: dict[str, Any] = {
        **RECORD.begin(),
        "load": [],
    }
    for count, shuffled in ((rows // 10, False), (rows, False), (rows // 10, True), (rows, True)):
        name = f"{count}-{'shuffled' if shuffled else 'ordered'}"
        say(f"{name}: generating")
        generate(folder / name, rows=count, images=images, classes=CLASSES, shuffled=shuffled)
        say(f"{name}: loading")
        results["load"].append({"rows": count, "shuffled": shuffled, **measured("load", folder / name)})
    say("workers")
    results["workers"] = measured("workers", folder / f"{rows}-ordered")
    say("identities and validation")
    results["check"] = {"rows": rows, **measured("check", folder / f"{rows}-shuffled")}
    return results


def measured(what: str, folder: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("measure.py")
    done = subprocess.run([sys.executable, script, what, folder], check=True, capture_output=True, text=True)
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in json.loads(done.stdout).items()
    }


def page(results: dict[str, Any]) -> str:
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

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine of {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}) that did other work at the same time: take the times as an order of
magnitude. Memory is what the kernel counts as private to a fresh process, beyond the interpreter with its imports, in
millions of bytes; for the peak it is looked at every 50 ms.

## From Parquet to a label matrix

{loads[0]["images"]:,} images, {loads[0]["classes"]:,} classes. "Shuffled" rows are in random order and have times, the
others are in the order of the images and have none.

| rows | open | labels | rows a second | in use after | at the peak | matrix alone | 256 rows dense | with an overlay |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(line(load) for load in loads)}

The highest peak is {worst["peak_mb"]:.0f} MB ({verdict(worst["peak_mb"] < LIMIT_MB)} the limit of {LIMIT_MB} MB), and
the slowest batch takes {batch:.2f} ms ({verdict(batch < LIMIT_MS)} the limit of {LIMIT_MS} ms). The table of images is
{loads[1]["open_mb"]:.0f} MB of what is in use. From {loads[0]["rows"]:,} to {loads[1]["rows"]:,} rows, memory in use
grows by {growth[False]:.1f} MB a million rows (shuffled: {growth[True]:.1f} MB). Dense, it would be {dense:,.0f} MB.

## Worker processes

{workers["workers"]} forked workers make all {workers["batches"]:,} batches of an epoch dense, in random order.

| | MB |
|---|---:|
| label matrix | {workers["matrix_mb"]:.0f} |
| proportional set size of the one process before | {workers["alone_pss_mb"]:.0f} |
| proportional set size of all {everybody} processes at the end | {workers["together_pss_mb"]:.0f} |
| private memory of a worker at the end | {workers["worker_private_mb"]:.0f} |

## Identities and validation

On {check["rows"]:,} shuffled rows; {check["errors"]} errors were found.

| | time | at the peak |
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


if __name__ == "__main__":
    main()
