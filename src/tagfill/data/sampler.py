"""Which images each rank visits in which order: a pure function of seed, epoch and rank.

A fixed permutation of the training set is dealt out to the ranks, so that an image's state never moves. Each epoch
a rank shuffles its own images and visits ⌊N/world⌋ of them, the same number everywhere; where that leaves one out, it
is another one in each epoch.

For semi-supervised methods a batch can hold a fixed share of images that have a label. Labelled and unlabelled images
then go round separately, each in a new order every time, and an epoch has as many steps as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.rng import generator


@dataclass(frozen=True)
class Sampler:
    """The order of visits.

    Attributes:
        size: training images, N.
        batch_size: images of one step over all ranks together.
        seed: of the run.
        rank: of this process.
        world: number of processes.
        unlabelled: positions of the images without any label; None mixes all images.
        labelled_share: of each batch, from the others.
    """

    size: int
    batch_size: int
    seed: int
    rank: int = 0
    world: int = 1
    unlabelled: NDArray[np.int64] | None = None
    labelled_share: float = 0.0

    def __post_init__(self) -> None:
        if self.batch_size % self.world:
            raise TagfillError(f"A batch of {self.batch_size} cannot be shared evenly by {self.world} processes.")
        if self.size < self.world:
            raise TagfillError(
                f"There are {self.size} training images for {self.world} processes; use fewer processes."
            )
        if self.unlabelled is not None:
            for kind, pool in self._pools().items():
                if not len(pool):
                    raise TagfillError(
                        f"labelled_share mixes labelled and unlabelled images, but there are no {kind} ones."
                    )

    @cached_property
    def shard(self) -> NDArray[np.int64]:
        """Positions of this rank's images in the training set, in ascending order."""
        return np.sort(generator(self.seed, "shards").permutation(self.size)[self.rank :: self.world])

    @property
    def steps(self) -> int:
        """Steps in an epoch, the same on every rank."""
        return -(-(self.size // self.world) // self._each)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """This rank's batches of an epoch (from 1), as positions in the training set; the last may be smaller."""
        if self.unlabelled is not None:
            return self._mixed(epoch)
        shard = self.shard
        visits = self.size // self.world
        if len(shard) > visits:
            shard = np.delete(shard, (epoch - 1) % len(shard))
        order = shard[generator(self.seed, "order", epoch, self.rank).permutation(visits)]
        return np.split(order, np.arange(self._each, visits, self._each))

    @property
    def _each(self) -> int:
        """Images of one step on this rank."""
        return self.batch_size // self.world

    def _pools(self) -> dict[str, NDArray[np.int64]]:
        """This rank's labelled and unlabelled images."""
        assert self.unlabelled is not None
        shard = self.shard
        without = np.isin(shard, self.unlabelled)
        return {"labelled": shard[~without], "unlabelled": shard[without]}

    def _mixed(self, epoch: int) -> list[NDArray[np.int64]]:
        labelled = min(max(round(self.labelled_share * self._each), 1), self._each - 1)
        counts = {"labelled": labelled, "unlabelled": self._each - labelled}
        drawn = [self._round(kind, pool, counts[kind], epoch) for kind, pool in self._pools().items()]
        return [np.concatenate(parts) for parts in zip(*drawn, strict=True)]

    def _round(self, kind: str, pool: NDArray[np.int64], count: int, epoch: int) -> list[NDArray[np.int64]]:
        """`count` images of a pool for each step of an epoch, going on where the epoch before left off."""
        first = (epoch - 1) * self.steps * count
        last = first + self.steps * count
        rounds = range(first // len(pool), (last - 1) // len(pool) + 1)
        orders = [
            pool[generator(self.seed, f"{kind} order", turn, self.rank).permutation(len(pool))] for turn in rounds
        ]
        chosen = np.concatenate(orders)[first - rounds[0] * len(pool) :][: last - first]
        return np.split(chosen, self.steps)
