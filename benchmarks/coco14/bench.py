"""What every table is given: the folder with its material, and how large it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobs import Job, Scores, known, run_all
from material import Material

GRID = (1e-3, 3e-3, 1e-2)
"""Learning rates, of batches of 256 photos."""


@dataclass(frozen=True)
class Bench:
    """Size and place of the benchmark.

    Attributes:
        material: photos, datasets and features.
        processes: that train at once.
        finished: only collect the runs that have ended.
    """

    material: Material
    processes: int
    finished: bool = False

    @property
    def quick(self) -> bool:
        """Whether a first picture is enough: one seed, few epochs, no search."""
        return self.material.quick

    @property
    def work(self) -> Path:
        """The folder of everything."""
        return self.material.work

    @property
    def epochs(self) -> int:
        """Of a head."""
        return 2 if self.quick else 10

    @property
    def seeds(self) -> int:
        """Of each entry of table A."""
        return 1 if self.quick else 2

    @property
    def grid(self) -> tuple[float, ...]:
        """Learning rates that are searched."""
        return (3e-3,) if self.quick else GRID

    def scores(self, jobs: list[Job]) -> list[Scores | None]:
        """Scores of each run; with `finished`, None for those that have not ended."""
        if self.finished:
            return [known(job, self.work) for job in jobs]
        return list(run_all(jobs, self.work, self.processes))

    def tuned(self, job: Job, grid: tuple[float, ...] | None = None) -> tuple[Job, Scores] | None:
        """The run with the rate that validation prefers, and its scores; None if not all rates have ended."""
        jobs = [replace(job, lr=lr) for lr in grid or self.grid]
        found = self.scores(jobs)
        if any(one is None for one in found):
            return None
        return max(zip(jobs, found, strict=True), key=lambda pair: pair[1].get("val", 0.0))  # type: ignore[union-attr,return-value]


Write = Callable[[dict[str, Any]], None]
"""Writes the results of a table as they are so far."""
