"""Table B3: dropped positives, random entries, and a fixed number of labels per class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from typing import Any

from bench import Bench
from jobs import Job, run_all
from tables import shown, table
from tuning import chosen

from tagfill import protocols

METHODS = {"ignore": "ne", "negative": "an", "ASL": "asl", "CSL": "csl", "SE": "se", "Hill": "hill", "SPLC": "splc"}
PER_CLASS = 100
WAYS: dict[str, Callable[..., Any]] = {
    "75 % of positives": lambda full, seed: protocols.dropped_positives(full, keep=0.75, seed=seed),
    "40 % of positives": lambda full, seed: protocols.dropped_positives(full, keep=0.4, seed=seed),
    "one positive": lambda full, seed: protocols.dropped_positives(full, keep="one", seed=seed),
    "10 % of entries": lambda full, seed: protocols.random_entries(full, proportion=0.1, seed=seed),
    "50 % of entries": lambda full, seed: protocols.random_entries(full, proportion=0.5, seed=seed),
    "90 % of entries": lambda full, seed: protocols.random_entries(full, proportion=0.9, seed=seed),
    f"{PER_CLASS} of each class": lambda full, seed: protocols.fixed_per_class(full, per_class=PER_CLASS, seed=seed),
}
PUBLISHED = {
    "half": {"ignore": 84.90, "negative": 81.21, "ASL": 81.91, "CSL": 85.21},
    "per class": {"ignore": 76.46, "negative": 81.24, "ASL": 81.64, "CSL": 83.44},
}
"""mAP of CSL's paper on COCO, with half of the entries and with 1,000 labels of each class."""

SEARCHED = ("40 % of positives", "50 % of entries", f"{PER_CLASS} of each class")
"""Where rates are searched: for the ways of its own kind, each."""


def measure(bench: Bench) -> dict[str, Any]:
    """Scores of every method for every way of missing labels."""
    bench.features("views")
    epochs = 2 if bench.quick else 6
    jobs = {(kind, name): Job(data(bench, way, 0), method, epochs=epochs)
            for kind, way in enumerate(SEARCHED) for name, method in METHODS.items()}  # fmt: skip
    rates = chosen(jobs, bench)
    cells = [(way, name, seed) for way in WAYS for name in METHODS for seed in range(bench.seeds)]
    runs = [replace(jobs[kind_of(way), name], data=data(bench, way, seed), seed=seed, lr=rates[kind_of(way), name])
            for way, name, seed in cells]  # fmt: skip
    found: dict[str, dict[str, list[float]]] = {name: {way: [] for way in WAYS} for name in METHODS}
    for (way, name, _), one in zip(cells, run_all(runs, bench.work, bench.processes), strict=True):
        if "refused" not in one:
            found[name][way].append(one["test"])
    listed = {name: [rates[kind, name] for kind in range(len(SEARCHED))] for name in METHODS}
    setting = {"epochs": epochs, "grid": bench.grid, "seeds": bench.seeds, "rates": listed}
    return {"setting": setting, "methods": found}


def kind_of(way: str) -> int:
    """Which of the searched ways is like this one."""
    return 0 if way.endswith(("positives", "positive")) else 1 if way.endswith("entries") else 2


def data(bench: Bench, way: str, seed: int) -> str:
    """The name of what is left."""
    place = way.replace(" %", "").replace(" ", "-")
    return bench.material.made(f"{place}-{seed}", lambda full: WAYS[way](full, seed), of="full")


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    setting, methods = results["setting"], results["methods"]
    rows = [[f"{name} (`{METHODS[name]}`)", *(shown(values) for values in found.values())]
            for name, found in methods.items()]  # fmt: skip
    rates = [f"{name} {', '.join(f'{rate:g}' for rate in of)}" for name, of in setting["rates"].items()]
    seeds, epochs = setting["seeds"], setting["epochs"]
    return f"""Test mAP with a share of the positives and no known absent label; with a share of all entries, present or
absent; and with {PER_CLASS} present and as many absent labels per class. {seeds} seeds, which also draw the labels,
{epochs} epochs. Rates were chosen on validation with the first seed, in the columns
{", ".join(SEARCHED)}, for all columns of that kind: {"; ".join(rates)}.

{table(["method", *WAYS], rows)}

If no label is known to be absent, ignoring unknown labels leads to predicting everything as present. SE then has
evidence for labels and none against them; it treats only labels without any evidence as absent, and an image with a
known positive has none of those.

In CSL's paper (COCO, fine-tuned) the order is, best first,
{in_order(PUBLISHED["half"])} with half of the entries, and
{in_order(PUBLISHED["per class"])} with 1,000 per class. Here it is
{in_order(measured(methods, "50 % of entries"))}, and {in_order(measured(methods, f"{PER_CLASS} of each class"))}."""


def measured(methods: dict[str, Any], way: str) -> dict[str, float]:
    """Mean scores of the methods that the paper has."""
    return {name: mean(methods[name][way]) for name in PUBLISHED["half"] if methods[name][way]}


def in_order(scores: dict[str, float]) -> str:
    """Names and scores, best first.

    >>> in_order({"ignore": 1.0, "CSL": 2.0})
    'CSL 2.00, ignore 1.00'
    """
    return ", ".join(f"{name} {scores[name]:.2f}" for name in sorted(scores, key=lambda name: -scores[name]))
