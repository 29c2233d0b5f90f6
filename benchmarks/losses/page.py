"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from statistics import median
from typing import Any

LIMITS = {False: 1.3, True: 2.0}  # ratio to cross-entropy at 80 classes, without and with memory


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, sizes = results["machine"], results["classes"]
    head = " | ".join(f"{int(classes):,} classes" for classes in sizes)
    rows = [
        f"| {name} | "
        + " | ".join(cell(size["methods"][name]) for size in sizes.values())
        + f" | {kept(results, name)} |"
        for name in order(results)
    ]
    with_maps = [name for name in order(results) if sizes["80"]["methods"][name]["base"] != "bce"]
    rows.insert(len(rows) - len(with_maps), "| **with class maps** |" + " |" * (len(sizes) + 1))
    return f"""---
orphan: true
---
# Cost of a training step

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}), one thread.

A step is cached 7×7×1280 features → `cam` head → loss → backward → Adam → memory, {results["batch"]} images.
Methods run in a new order each round; a number is the median over rounds of the ratio to `bce` in the same round, with
the smallest and the largest in brackets. `bce again` runs `bce` a second time as a control: its distance from 1 is the
measurement error of the other numbers.

If no method needs class maps, the head pools features before it classifies them, which gives the same logits. Class
maps make a step of `bce` {costs(sizes)} as long; methods that need
them (the lower part of the table) are compared with `bce` with class maps. FixMatch has two views of each image and
therefore twice the features.

| method | {head} | per-image state at 80 classes |
|---|{"---:|" * len(sizes)}---:|
{chr(10).join(rows)}

{verdicts(results)}
"""


def order(results: dict[str, Any]) -> list[str]:
    """Methods without class maps first, then by cost at 80 classes."""
    methods = results["classes"]["80"]["methods"]
    return sorted(methods, key=lambda name: (methods[name]["base"] != "bce", median(methods[name]["ratios"])))


def costs(sizes: dict[str, Any]) -> str:
    shown = [f"{size['maps_cost']:.1f} ({int(classes):,} classes)" for classes, size in sizes.items()]
    return ", ".join(shown) + " times"


def cell(measured: dict[str, Any]) -> str:
    ratios = measured["ratios"]
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def kept(results: dict[str, Any], name: str) -> str:
    memory = results["classes"]["80"]["methods"][name]["memory"]
    return ", ".join(f"{store} {size / 1e6:,.1f} MB" for store, size in memory.items()) or "–"


def verdicts(results: dict[str, Any]) -> str:
    """Which methods stay within the limits."""
    methods = results["classes"]["80"]["methods"]
    lines = []
    for remembers, limit in LIMITS.items():
        group = [name for name in order(results) if bool(methods[name]["memory"]) is remembers]
        over = [
            f"{name} ({median(methods[name]['ratios']):.2f})"
            for name in group
            if median(methods[name]["ratios"]) > limit
        ]
        which = "with" if remembers else "without"
        found = f"above it: {', '.join(over)}" if over else "all stay within it"
        lines.append(
            f"The limit at 80 classes for the {len(group)} methods {which} per-image state is {limit}×; {found}."
        )
    return "\n".join(lines)
