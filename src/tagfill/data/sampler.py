"""Which images each rank visits in which order: a pure function of seed, epoch and rank.

A fixed permutation of the training set is split among the ranks, so that an image's state never moves. In each epoch a
rank shuffles its own images and visits ⌊N/world⌋ of them, the same number on every rank; if that leaves out an image,
it is a different one in each epoch.

For semi-supervised methods, each batch can contain a fixed share of images that have a label. Labeled and unlabeled
images are then cycled through separately, in a new order each time. An epoch has as many steps as without the share,
or as many as it takes to visit the labeled images once (`labeled_epochs`, and always if the share is 1). Samplers with
labeled epochs and equally many labeled images per batch draw the same labeled images in every step, whatever else their
batches contain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.rng import generator

_LABELED, _UNLABELED = "labelled order", "unlabelled order"  # names of random streams; other names, other draws


@dataclass(frozen=True)
class Sampler:
    """The order of visits.

    Attributes:
        size: number of training images, N.
        batch_size: images per step, over all ranks.
        seed: seed of the run.
        rank: rank of this process.
        world: number of processes.
        unlabeled: positions of the images without any label; None mixes all images.
        labeled_share: share of labeled images in each batch, if `unlabeled` is given; 1 leaves out the others.
        labeled_epochs: an epoch visits the labeled images once instead of as many images as there are.
    """

    size: int
    batch_size: int
    seed: int
    rank: int = 0
    world: int = 1
    unlabeled: NDArray[np.int64] | None = None
    labeled_share: float = 0.0
    labeled_epochs: bool = False

    def __post_init__(self) -> None:
        if self.batch_size % self.world:
            raise TagfillError(f"A batch of {self.batch_size} cannot be split evenly among {self.world} processes.")
        if self.size < self.world:
            raise TagfillError(
                f"There are {self.size} training images for {self.world} processes; use fewer processes."
            )
        if self.unlabeled is not None:
            for kind, pool in zip(("labeled", "unlabeled"), self._pools, strict=True):
                if not len(pool) and not (kind == "unlabeled" and self.labeled_share == 1):
                    raise TagfillError(
                        f"labeled_share is {self.labeled_share:g}, but there are no {kind} images; leave it out"
                        + ("." if kind == "labeled" else ", or set it to 1.")
                    )

    @cached_property
    def shard(self) -> NDArray[np.int64]:
        """Positions of this rank's images in the training set, in ascending order."""
        return np.sort(generator(self.seed, "shards").permutation(self.size)[self.rank :: self.world])

    @property
    def steps(self) -> int:
        """Steps per epoch, the same on every rank."""
        if self.unlabeled is not None and (self.labeled_epochs or self.labeled_share == 1):
            labeled = self.size - len(self.unlabeled)
            return max(-(-(labeled // self.world) // self._labeled_per_batch), 1)
        return -(-(self.size // self.world) // self._rank_batch)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """This rank's batches of an epoch (from 1), as positions in the training set; the last may be smaller."""
        if self.unlabeled is not None:
            return self._mixed_batches(epoch)
        shard = self.shard
        visits = self.size // self.world
        if len(shard) > visits:
            shard = np.delete(shard, (epoch - 1) % len(shard))
        order = shard[generator(self.seed, "order", epoch, self.rank).permutation(visits)]
        return np.split(order, np.arange(self._rank_batch, visits, self._rank_batch))

    @property
    def _rank_batch(self) -> int:
        """Images per step on this rank."""
        return self.batch_size // self.world

    @cached_property
    def _pools(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """This rank's labeled and unlabeled images."""
        assert self.unlabeled is not None
        without = np.isin(self.shard, self.unlabeled)
        return self.shard[~without], self.shard[without]

    @property
    def _labeled_per_batch(self) -> int:
        """Labeled images per step on this rank; of both kinds at least one, unless all are labeled."""
        most = self._rank_batch if self.labeled_share == 1 else self._rank_batch - 1
        return min(max(round(self.labeled_share * self._rank_batch), 1), most)

    def _mixed_batches(self, epoch: int) -> list[NDArray[np.int64]]:
        count = self._labeled_per_batch
        labeled, unlabeled = self._pools
        if count == self._rank_batch:
            return self._cycle(_LABELED, labeled, count, epoch)
        parts = zip(
            self._cycle(_LABELED, labeled, count, epoch),
            self._cycle(_UNLABELED, unlabeled, self._rank_batch - count, epoch),
            strict=True,
        )
        return [np.concatenate(pair) for pair in parts]

    def _cycle(self, stream: str, pool: NDArray[np.int64], count: int, epoch: int) -> list[NDArray[np.int64]]:
        """Take `count` images of a pool for each step of an epoch, continuing where the previous epoch stopped."""
        first = (epoch - 1) * self.steps * count
        last = first + self.steps * count
        rounds = range(first // len(pool), (last - 1) // len(pool) + 1)
        orders = [pool[generator(self.seed, stream, turn, self.rank).permutation(len(pool))] for turn in rounds]
        chosen = np.concatenate(orders)[first - rounds[0] * len(pool) :][: last - first]
        return np.split(chosen, self.steps)
