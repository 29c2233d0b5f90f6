"""What every table is given: the folder with its material, and how large it may be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from material import Material
from tuning import GRID


@dataclass(frozen=True)
class Bench:
    """Size and place of the benchmark.

    Attributes:
        material: photos, datasets and features.
        processes: that train at once.
    """

    material: Material
    processes: int

    @property
    def quick(self) -> bool:
        """Whether a first picture is enough: one seed, few epochs, no search."""
        return self.material.quick

    @property
    def work(self) -> Path:
        """The folder of everything."""
        return self.material.work

    @property
    def seeds(self) -> int:
        """Of each entry."""
        return 1 if self.quick else 3

    @property
    def grid(self) -> tuple[float, ...]:
        """Learning rates that are searched."""
        return (1e-3,) if self.quick else GRID

    def features(self, *names: str) -> None:
        """See that these caches are there."""
        for name in names:
            self.material.features(name, self.processes)
