"""Going on with another number of processes, between two epochs.

Each image's state moves to the process that sees the image from now on. Weights and optimiser are the same in all
processes and stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tagfill.loading import Sampler
from tagfill.memory import JournaledArray, SavedPart, Shard, below
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.folder import Run, memory_folder


def roll_back(run: Run, checkpoint: Checkpoint) -> None:
    """Bring the files of all processes that saved a checkpoint back to it; the main process does this once."""
    for rank, checksums in enumerate(checkpoint.state.disk):
        folder = memory_folder(run, checkpoint.state.memory, rank)
        for name, checksum in checksums.items():
            rows = len(below(checkpoint.of_rank(rank), "shard")["index"])
            path = folder / f"{name}.u8"
            array = JournaledArray(path, (rows, path.stat().st_size // max(rows, 1)), create=False)
            array.roll_back(checkpoint.state.number, checksum)
            array.close()


def parts(run: Run, sampler: Sampler, checkpoint: Checkpoint) -> list[SavedPart]:
    """What each of the processes kept that saved a checkpoint."""
    found = []
    for rank, checksums in enumerate(checkpoint.state.disk):
        shard = replace(sampler, rank=rank, world=checkpoint.world, batch_size=checkpoint.world).shard
        saved = checkpoint.of_rank(rank)
        assert np.array_equal(shard, below(saved, "shard")["index"].numpy())
        folder = memory_folder(run, checkpoint.state.memory, rank)
        files = {name: folder / f"{name}.u8" for name in checksums}
        found.append(SavedPart(Shard(shard), below(saved, "memory"), files))
    return found
