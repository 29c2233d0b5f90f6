"""Train a recipe in several processes and record the prototypes of PatchCluster, one file per rank.

Usage: python record_prototypes.py RECIPE OUT PROCESSES
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import save_file

from tagfill.contract import Ranks
from tagfill.dataset import Dataset
from tagfill.memory.statistics import Prototypes
from tagfill.training import read_recipe, start


def recording(folder: Path) -> Callable[[Prototypes, Ranks], None]:
    """`Prototypes.share`, and then a file of what every process now has."""
    share = Prototypes.share

    def share_and_save(self: Prototypes, ranks: Ranks) -> None:
        share(self, ranks)
        save_file({"sums": self.sums, "counts": self.counts}, folder / f"prototypes-{ranks.rank}.safetensors")

    return share_and_save


if __name__ == "__main__":
    recipe, folder = read_recipe(Path(sys.argv[1])), Path(sys.argv[2])
    Prototypes.share = recording(folder)  # type: ignore[method-assign]
    start(Dataset.open(recipe.dataset), recipe, out=folder / "run", processes=int(sys.argv[3]))
