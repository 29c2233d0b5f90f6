"""The nearest images of each image, found once by the features of a frozen network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import LabelMatrix
from tagfill.memory.nearest import Search, nearest
from tagfill.memory.shard import SavedPart, Shard


class Neighbours:
    """n×k positions of the nearest training images and their cosine distances, for the images of this rank.

    Args:
        labels: of the training images.
        shard: the images of this rank; their neighbours may be anybody's.
        count: k; with fewer than k other images, all of them.
    """

    def __init__(self, labels: LabelMatrix, shard: Shard, *, count: int) -> None:
        self._shard = shard
        self._count = min(count, max(len(labels) - 1, 0))
        self.index = torch.zeros(len(shard), self._count, dtype=torch.int32)
        self.distance = torch.zeros(len(shard), self._count)
        self.ready = False

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard, count: int) -> int:
        """What positions and distances take."""
        return 8 * len(shard) * min(count, max(len(labels) - 1, 0))

    def fill(self, unit: NDArray[np.float32], *, search: Search = "auto") -> None:
        """Find the neighbours by the features of all training images, N×D with rows of length 1."""
        index, distance = nearest(unit, self._shard.index, self._count, search=search)
        self.index, self.distance = torch.from_numpy(index.astype(np.int32)), torch.from_numpy(distance)
        self.ready = True

    def read(self, index: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and distances of these images' neighbours, B×k, nearest first."""
        rows = self._shard.rows(index)
        return self.index.numpy()[rows].astype(np.int64), self.distance.numpy()[rows]

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        self.load_state_dict({name: self._shard.collect(parts, name) for name in ("index", "distance")})

    def state_dict(self) -> dict[str, Tensor]:
        """Both tables."""
        return {"index": self.index, "distance": self.distance}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved tables; nothing has to be found again."""
        self.index, self.distance = state["index"].clone(), state["distance"].clone()
        self.ready = True
