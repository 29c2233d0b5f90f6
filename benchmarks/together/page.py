"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from statistics import median
from typing import Any

TARGET, TOLERANCE = 4, 1e-5


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, sizes = results["machine"], results["sizes"]
    rows = "\n".join(row(batch, rounds) for batch, rounds in results["batches"].items())
    every = [one for rounds in results["batches"].values() for one in rounds]
    return f"""---
orphan: true
---
# Runs that train together

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}) that was also doing other work.

`tagfill.compare` with the methods `{results["methods"]}`, `an` and `full`, {results["seeds"]} seeds and
`{results["grid"]}`: {every[0]["runs"]} runs of {results["epochs"]} epochs. Linear heads on pooled features of
{results["channels"]:,} numbers, {sizes["train"]:,} training images, one of {results["classes"]} labels each. One
process and one thread, {rounds(results)}. *Together* is what `compare`
[does](../comparing.md#runs-that-train-together); *one after another*, the same command trains each run alone.
The time includes validation, checkpoints and scores of {sizes["test"]} test images. Both take turns; ratios are
within a round.

| batch | together | one after another | times as fast | range | by CPU time |
|---:|---:|---:|---:|---:|---:|
{rows}

{verdict(results)} The mAP of a run differs by at most
{max(one["difference"] for one in every):.1g} from the one that it has alone.
"""


def rounds(results: dict[str, Any]) -> str:
    count = len(next(iter(results["batches"].values())))
    return "one round" if count == 1 else f"{count} rounds"


def row(batch: str, rounds: list[dict[str, Any]]) -> str:
    """Medians over the rounds."""
    faster = ratios(rounds, "seconds")
    seconds = [median(one[way]["seconds"] for one in rounds) for way in ("together", "one after another")]
    cells = [batch, *(f"{value:.0f} s" for value in seconds), f"{median(faster):.1f}"]
    cells += [f"{min(faster):.1f}–{max(faster):.1f}", f"{median(ratios(rounds, 'CPU seconds')):.1f}"]
    return f"| {' | '.join(cells)} |"


def ratios(rounds: list[dict[str, Any]], kind: str) -> list[float]:
    return [one["one after another"][kind] / one["together"][kind] for one in rounds]


def verdict(results: dict[str, Any]) -> str:
    missed = [batch for batch, rounds in results["batches"].items() if median(ratios(rounds, "seconds")) < TARGET]
    if not missed:
        return f"The target is {TARGET} times as fast, which is reached."
    return f"The target is {TARGET} times as fast, which is missed with batches of {' and '.join(missed)}."
