"""Table B: a share of the positives and nothing else, and a share of all entries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from bench import Bench, Write
from jobs import Job
from single_positives import ENTRIES
from tables import table

import tagfill
from tagfill.labels import LabelMatrix
from tagfill.protocols import dropped_positives, random_entries
from tagfill.protocols.simulate import assemble

WAYS = {
    "10 % of positives": ("positives", 0.1), "40 % of positives": ("positives", 0.4),
    "75 % of positives": ("positives", 0.75), "10 % of entries": ("entries", 0.1),
    "30 % of entries": ("entries", 0.3), "50 % of entries": ("entries", 0.5),
}  # fmt: skip
METHODS = {"positives": ("an", "hill", "splc", "ll-r", "em"), "entries": ("an", "ignore", "csl", "zlpr", "two-way")}
SEARCHED = "10 % of entries"
"""The column in which rates are chosen that table A does not have."""


def measure(bench: Bench, write: Write) -> None:
    """One seed, rates of table A where it has them; written after every run."""
    found: dict[str, dict[str, Any]] = {}
    rates: dict[str, float] = {}
    setting: dict[str, Any] = {"epochs": bench.epochs, "batch": Job("", "").batch, "grid": bench.grid, "rates": rates}
    setting["published"] = published = []
    for kind, methods in METHODS.items():
        ways = [way for way, (of, _) in WAYS.items() if of == kind]
        for way in sorted(ways, key=lambda way: way != SEARCHED):
            data = dataset(bench, way)
            if data.startswith("published"):
                published.append(way)
            for method in methods:
                if method in ENTRIES and method not in rates:
                    first = bench.tuned(replace(ENTRIES[method], data="one-0", epochs=bench.epochs))
                    rates |= {} if first is None else {method: first[0].lr}
                grid = (rates[method],) if method in rates else None
                best = bench.tuned(Job(data, method, epochs=bench.epochs), grid)
                if best is None:
                    continue
                job, scores = best
                rates[method] = job.lr
                found.setdefault(method, {})[way] = {key: scores.get(key) for key in ("test", "boosted", "refused")}
                write({"setting": setting, "methods": found})


def dataset(bench: Bench, way: str) -> str:
    """The name of what is left."""
    kind, share = WAYS[way]
    name = f"{kind}-{round(100 * share)}"
    left = bench.material.left(share) if kind == "positives" else None
    if left is not None:
        return bench.material.made(f"published-{round(100 * share)}", lambda full: published_list(full, left))
    if kind == "positives":
        return bench.material.made(name, lambda full: dropped_positives(full, keep=share, seed=0))
    return bench.material.made(name, lambda full: random_entries(full, proportion=share, seed=0))


def published_list(data: tagfill.Dataset, left: dict[str, set[str]]) -> tagfill.Dataset:
    """Keep the listed labels of each training photo."""
    places = {label: place for place, label in enumerate(data.classes)}
    kept = [sorted(places[label] for label in left[name]) for name in data.names()]
    starts = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    classes = np.array([place for row in kept for place in row], np.int32)
    matrix = LabelMatrix(starts, classes, np.ones(len(classes), np.int8), len(data.classes))
    return assemble(data, "published-list", matrix, seed=0, parameters={})


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    setting = results["setting"]
    parts = []
    for kind, methods in METHODS.items():
        ways = [way for way, (of, _) in WAYS.items() if of == kind]
        rows = [[f"`{name}`", *(cell(results["methods"].get(name, {}).get(way)) for way in ways)] for name in methods]
        parts.append(table(["method", *ways], rows))
    published = setting.get("published")
    draw = "a draw of our own" if not published else f"the lists of Zhang et al. for {' and '.join(published)}"
    rest = " and a draw of our own for 10 %" if published else ""
    rates = "; ".join(f"{name} {rate:g}" for name, rate in setting["rates"].items())
    return f"""Test mAP, and in brackets with boost at inference. Above, each positive is kept with that probability and
nothing is known to be absent: the published protocol of missing labels, with {draw}{rest}. Below, each
entry, present or absent, is kept with that probability. {setting["epochs"]} epochs, one seed; rates are those of the
first table, or were chosen on validation in the column {SEARCHED}: {rates}.

{parts[0]}

{parts[1]}"""


def cell(found: dict[str, Any] | None) -> str:
    """A score, and the boosted one."""
    if found is None or found.get("test") is None:
        return "–"
    return f"{found['test']:.2f} ({found['boosted']:.2f})"
