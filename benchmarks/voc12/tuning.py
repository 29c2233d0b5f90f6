"""The same small grid for every entry: searched with the first seed, chosen on validation, kept for the other seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import Job, run_all

GRID = (3e-4, 1e-3, 3e-3)
"""Learning rates."""


def tuned(
    entries: Mapping[str, Job], work: Path, *, seeds: int, processes: int, grid: tuple[float, ...] = GRID
) -> list[dict[str, Any]]:
    """A row an entry: the chosen rate, and scores of all seeds with it."""
    names = list(entries)
    searched = [replace(entries[name], lr=lr) for name in names for lr in grid]
    found = dict(zip([(name, lr) for name in names for lr in grid], run_all(searched, work, processes), strict=True))
    rows = []
    for name in names:
        refusals = [found[name, lr]["refused"] for lr in grid if "refused" in found[name, lr]]
        if refusals:
            rows.append({"name": name, "method": entries[name].method, "refused": refusals[0]})
            continue
        best = max(grid, key=lambda lr, name=name: found[name, lr]["val"])
        rows.append({"name": name, "method": entries[name].method, "lr": best, "searched": {
            f"{lr:g}": found[name, lr]["val"] for lr in grid}})  # fmt: skip
    runs = [replace(entries[row["name"]], lr=row["lr"], seed=seed) for row in rows if "lr" in row
            for seed in range(seeds)]  # fmt: skip
    scores = iter(run_all(runs, work, processes))
    for row in rows:
        if "lr" in row:
            of_seeds = [next(scores) for _ in range(seeds)]
            row |= {key: [one[key] for one in of_seeds] for key in of_seeds[0]}
    return rows
