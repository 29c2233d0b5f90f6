"""What every table is given: the folder with its material, and how large it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobs import Job, Scores, forget, known, score, train_all
from material import Material

GRID = (1e-3, 3e-3)
"""Learning rates, of batches of 256 photos."""


@dataclass(frozen=True)
class Bench:
    """Size and place of the benchmark.

    Attributes:
        material: photos, datasets and features.
        processes: that train at once.
        finished: only collect the runs that have ended.
        seeds: of each entry of table A.
    """

    material: Material
    processes: int
    finished: bool = False
    seeds: int = 2

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
    def grid(self) -> tuple[float, ...]:
        """Learning rates that are searched."""
        return (3e-3,) if self.quick else GRID

    def tuned(
        self, job: Job, grid: tuple[float, ...] | None = None, *, boosted: bool = True
    ) -> tuple[Job, Scores] | None:
        """The run with the rate that validation prefers, and its scores; with `finished`, None if it has not ended."""
        jobs = [replace(job, lr=lr) for lr in grid or self.grid]
        if self.finished:
            found = [known(one, self.work) for one in jobs]
            if any(scores is None for scores in found):
                return None
        else:
            found = list(train_all(jobs, self.work, self.processes))
        best, scores = max(zip(jobs, found, strict=True), key=lambda pair: (pair[1] or {}).get("val", 0.0))
        if self.finished:
            return (best, scores) if scores is not None and ("test" in scores or "refused" in scores) else None
        for one in jobs:
            if one != best:
                forget(one, self.work)
        return best, score(best, self.work, boosted=boosted)


Write = Callable[[dict[str, Any]], None]
"""Writes the results of a table as they are so far."""
