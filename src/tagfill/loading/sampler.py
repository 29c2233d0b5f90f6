"""Which images each rank visits in which order: a pure function of seed, epoch and rank.

A fixed permutation of the training set is dealt out to the ranks, so that an image's state never moves. Each epoch
a rank shuffles its own images and visits ⌊N/world⌋ of them, the same number everywhere; where that leaves one out, it
is another one in each epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.draws import generator
from tagfill.errors import TagfillError


@dataclass(frozen=True)
class Sampler:
    """The order of visits.

    Attributes:
        size: training images, N.
        batch_size: images of one step over all ranks together.
        seed: of the run.
        rank: of this process.
        world: number of processes.
    """

    size: int
    batch_size: int
    seed: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.batch_size % self.world:
            raise TagfillError(f"A batch of {self.batch_size} cannot be shared evenly by {self.world} processes.")
        if self.size < self.world:
            raise TagfillError(
                f"There are {self.size} training images for {self.world} processes; use fewer processes."
            )

    @property
    def shard(self) -> NDArray[np.int64]:
        """Positions of this rank's images in the training set, in ascending order."""
        return np.sort(generator(self.seed, "shards").permutation(self.size)[self.rank :: self.world])

    @property
    def steps(self) -> int:
        """Steps in an epoch, the same on every rank."""
        return -(-(self.size // self.world) // (self.batch_size // self.world))

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """This rank's batches of an epoch (from 1), as positions in the training set; the last may be smaller."""
        shard = self.shard
        visits = self.size // self.world
        if len(shard) > visits:
            shard = np.delete(shard, (epoch - 1) % len(shard))
        order = shard[generator(self.seed, "order", epoch, self.rank).permutation(visits)]
        return np.split(order, np.arange(self.batch_size // self.world, visits, self.batch_size // self.world))
