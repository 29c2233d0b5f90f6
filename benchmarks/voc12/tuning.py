"""The same small grid for every entry: searched with the first seed, chosen on validation, kept for the other seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobs import Job, run_all

if TYPE_CHECKING:
    from bench import Bench

GRID = (3e-4, 1e-3, 3e-3)
"""Learning rates."""


def chosen(entries: Mapping[str, Job], bench: Bench) -> dict[str, float]:
    """The rate of each entry, by validation; the middle of the grid for one that refuses its data."""
    searched = [replace(job, lr=lr) for job in entries.values() for lr in bench.grid]
    scores = iter(run_all(searched, bench.work, bench.processes))
    found = {name: {lr: next(scores).get("val", 0.0) for lr in bench.grid} for name in entries}
    return {name: max(by_rate, key=lambda lr, by_rate=by_rate: by_rate[lr]) for name, by_rate in found.items()}


def tuned(entries: Mapping[str, Job], bench: Bench) -> list[dict[str, Any]]:
    """A row an entry: the chosen rate and the scores of all seeds with it, or the sentence with which it refuses."""
    rates = chosen(entries, bench)
    seeds = range(bench.seeds)
    runs = [replace(job, lr=rates[name], seed=seed) for name, job in entries.items() for seed in seeds]
    scores = iter(run_all(runs, bench.work, bench.processes))
    rows = []
    for name, job in entries.items():
        of_seeds = [next(scores) for _ in seeds]
        refused = [one["refused"] for one in of_seeds if "refused" in one]
        row = {"name": name, "method": job.method, "head": job.head, "lr": rates[name]}
        rows.append(row | ({"refused": refused[0]} if refused else {
            key: [one[key] for one in of_seeds] for key in of_seeds[0]}))  # fmt: skip
    return rows
