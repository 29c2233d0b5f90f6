"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from statistics import median
from typing import Any

WANTED = 1.5  # requests per second with batches relative to one at a time, at 16 clients


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine = results["machine"]
    return f"""# Serving with and without batches

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}).

`tagfill serve` with `tf_efficientnet_lite0` at 224 pixels on loopback. Clients wait for each answer, for
{results["seconds"]:g} seconds per turn. Clients and servers share the machine. Servers take turns in a new order each
round; the one without batches runs twice, as a control.

| clients | server | requests/s | median | 99th percentile |
|---:|---|---:|---:|---:|
{chr(10).join(line for count, one in results["clients"].items() for line in rows(count, one))}

{chr(10).join(verdict(count, one) for count, one in results["clients"].items())}
"""


def rows(count: str, measured: dict[str, Any]) -> list[str]:
    return [
        f"| {count} | {name} | {median(one['rate'] for one in many):.1f} | "
        f"{1000 * median(one['p50'] for one in many):.0f} ms | {1000 * median(one['p99'] for one in many):.0f} ms |"
        for name, many in measured["servers"].items()
    ]


def verdict(count: str, measured: dict[str, Any]) -> str:
    ratio, control = measured["ratios"], measured["control"]
    told = (
        f"- With {count} clients, batching serves {median(ratio):.2f} times ({min(ratio):.2f} to {max(ratio):.2f}) as "
        f"many requests as one at a time; the control is {median(control):.2f} "
        f"({min(control):.2f} to {max(control):.2f})."
    )
    if count == "16":
        told += f" The target of {WANTED} is {'met' if median(ratio) >= WANTED else 'missed'}."
    return told
