"""The page of the benchmark, generated from its results."""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

FLOOR = "an"
COMPLETE = "full labels"  # in the names of entries with complete labels; the best of them is the ceiling
MUST_BEAT = ("wan", "epr", "ll-r", "ll-r + boost", "en", "en+scl", "em")


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    scores, sizes, machine = results["scores"], results["sizes"], results["machine"]
    floor, ceiling = mean(scores[FLOOR]), max(mean(scores[name]) for name in scores if COMPLETE in name)
    rows = [row(name, scores, floor, ceiling) for name in sorted(scores, key=lambda name: -mean(scores[name]))]
    refused = [f"- `{name}`: {sentence}" for name, sentence in results["failures"].items()]
    return f"""---
orphan: true
---
# Method comparison on scenes with one label per image

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}).{later(results)}

Scenes: {sizes["train"]} training images with one known label each, {sizes["val"]} validation images with complete
labels, which chose the epoch, {sizes["test"]} test images. A `cam` head on cached features of the bundled backbone,
Adam 1e-3, batches of 16, {results["epochs"]} epochs, {results["seeds"]} seeds. Nothing was tuned for any method: these
are defaults, not the best settings of each method. (The difficulty of the scenes was fixed earlier, by looking at the
test scores of complete labels and `an`.) All methods share the labels, order and initial weights of a seed, so gains
over `an` are paired: the table shows their mean over the seeds, its standard error, and the number of seeds with a
gain. 100 % of the gap is the best use of complete labels: a boost helps with complete labels too, so compare an entry
with a boost with `full labels` and `an` with the same boost.

| method | test mAP | ± over seeds | gain over `an` | ± of the mean | seeds won | gap closed |
|---|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}

{verdict(scores)}

Methods far below `an` lack the labels that they learn from: with one positive per image and no known negative, ignoring
unknown labels (`ignore`, `wne`, `p-asl`, `curriculum`, `patchml`) or judging them by known negatives (`se`, `se-l`,
`se-i`) pushes all scores up. They are designed for data with negatives. `ep`, which trusts its guesses, does badly,
as in its paper.
{chr(10).join(["", "Refused on this data:", "", *refused, ""]) if refused else ""}"""


def later(results: dict[str, Any]) -> str:
    """Entries that were measured at another commit."""
    lines = [f"Measured later, at commit `{commit}`: {', '.join(f'`{name}`' for name in names)}."
             for commit, names in results.get("later", {}).items()]  # fmt: skip
    return "".join(f"\n{line}" for line in lines)


def row(name: str, scores: dict[str, list[float]], floor: float, ceiling: float) -> str:
    values, gains = scores[name], gain(name, scores)
    closed = (mean(values) - floor) / (ceiling - floor)
    error = stdev(gains) / math.sqrt(len(gains))
    won = sum(value > 0 for value in gains)
    return (
        f"| {name} | {mean(values):.2f} | {stdev(values):.2f} | {mean(gains):+.2f} | {error:.2f} "
        f"| {won} of {len(gains)} | {closed:.0%} |"
    )


def gain(name: str, scores: dict[str, list[float]]) -> list[float]:
    return [value - base for value, base in zip(scores[name], scores[FLOOR], strict=True)]


def verdict(scores: dict[str, list[float]]) -> str:
    """Which of the methods that should beat `an` do."""
    below = [name for name in MUST_BEAT if name not in scores or mean(gain(name, scores)) <= 0]
    expected = ", ".join(f"`{name}`" for name in MUST_BEAT)
    found = "all of them do" if not below else f"{', '.join(f'`{name}`' for name in below)} did not"
    return f"Expected to beat `an` on average: {expected}; {found}."
