"""The page of the benchmark, from its results alone."""

from __future__ import annotations

from typing import Any


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, large, nested = results["machine"], results["large"], results["nested"]
    ratio = large["passes"]["cpu_seconds"] / large["scan"]["cpu_seconds"]
    return f"""---
orphan: true
---
# Large JSON files

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine of {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, ijson {machine["ijson"]}) that did other work at the same time:
compare CPU seconds, not the time on the clock. Memory is the growth of the peak of a fresh process.

A reader of COCO-style files needs the categories first, then the images, then the annotations, wherever they are in the
file. `tagfill.formats.json_stream` scans the bytes for the beginning and end of each list and parses each list once.
Without the scan, each list takes a pass of ijson over the whole file.

| a file of {large["bytes"] / 1e6:.0f} MB, {large["scan"]["items"]["annotations"]:,} annotations | CPU | clock | peak |
|---|---:|---:|---:|
{line("scan, then each list", large["scan"])}
{line("three passes of ijson", large["passes"])}

The passes take {ratio:.1f} times as long. Both are bounded in memory, but not on a file of lists inside lists:

| {nested["bytes"] / 1e3:.0f} kB, {nested["depth"]:,} lists inside one another | CPU | clock | peak |
|---|---:|---:|---:|
{line("scan, which refuses the file", nested["scan"])}
{line("three passes of ijson", nested["passes"])}

So the scan stays.
"""


def line(name: str, measured: dict[str, Any]) -> str:
    times = f"{measured['cpu_seconds']:.1f} s | {measured['seconds']:.1f} s"
    return f"| {name} | {times} | {measured['peak_mb']:,.0f} MB |"
