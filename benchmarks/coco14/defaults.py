"""Table D: `auto`, the default of `tagfill train` and `tagfill fill`, beside rows of table A."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bench import Bench, Write
from jobs import Job
from single_positives import dataset
from tables import gain, shown, table

ENTRIES = {"one label": Job("one-{seed}", "auto", head="cam"), "all labels": Job("full", "auto", head="cam")}
BESIDE = ("full", "ll-r", "em", "hill", "an")
"""Rows of table A with a boost at inference, which `auto` always has."""


def measure(bench: Bench, write: Write) -> None:
    """Default rate, no search; written after every run."""
    rows: dict[str, dict[str, Any]] = {}
    setting = {"epochs": bench.epochs, "batch": Job("", "").batch, "rate": Job("", "").lr}
    for seed in range(bench.seeds):
        dataset(bench, seed)
        for name, entry in ENTRIES.items():
            job = Job(entry.data.format(seed=seed), entry.method, head=entry.head, epochs=bench.epochs, seed=seed)
            found = bench.tuned(job, (job.lr,), boosted=False)
            if found is None:
                continue
            for key, value in found[1].items():
                rows.setdefault(name, {}).setdefault(key, []).append(value)
            write({"setting": setting, "rows": rows})


def section(results: dict[str, Any], heads: dict[str, Any] | None) -> str:
    """What the page says, beside table A."""
    setting, rows = results["setting"], results["rows"]
    others = {} if heads is None else {row["name"]: row["boosted"] for row in heads["rows"] if "boosted" in row}
    floor = others.get("an", [])
    lines = [[f"`auto`, {name}", row["test"]] for name, row in rows.items() if "test" in row]
    lines += [[f"`{name}`, with boost at inference", others[name]] for name in BESIDE if name in others]
    lines.sort(key=lambda line: -mean(line[1]))
    best = max((mean(values[: len(floor)]) for _, values in lines), default=0.0)
    cells = []
    for name, values in lines:
        low = mean(floor[: len(values)]) if floor else 0.0
        closed = f"{(mean(values) - low) / (best - low):.0%}" if floor and best > low else "–"
        cells.append([name, shown(values), gain(values, floor, "an" if values is floor else name), closed])
    seconds = rows.get("one label", {}).get("CPU seconds", [])
    cost = f" One label: {mean(seconds) / 60:.1f} minutes of computing time." if seconds else ""
    return f"""[`auto`](../training.md#the-method-auto) is what `tagfill train` and `tagfill fill` use unless a method
is named. It combines several heads on the class maps of the same frozen features, and its inference has a boost; so it
is compared with entries of the first table that have one, and *gap closed* goes from `an` with a boost to the best use
of complete labels, which may be `auto` too. {setting["epochs"]} epochs, batches of {setting["batch"]}, rate
{setting["rate"]:g}, not searched. Its known labels are those of the first table, and its evidence is the ImageNet prior
if cross-fitting says that it helps.{cost}

{table(["method", "test mAP", "gain over `an`", "gap closed"], cells)}"""
