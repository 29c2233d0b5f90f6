"""A sparse set of (image, class) entries, for what a method decides about a few labels of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import POSITIVE, LabelMatrix
from tagfill.memory.shard import SavedPart, Shard
from tagfill.memory.sparse import entries_of


class Entries:
    """Entries of this rank's images, kept as sorted keys row·L + class."""

    def __init__(self, shard: Shard, width: int) -> None:
        self._shard = shard
        self._width = width
        self.keys = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard, most: int | None) -> int:
        """What at most `most` entries take; by default, every entry of the shard."""
        every = len(shard) * labels.width
        return 8 * (every if most is None else min(most, every))

    def replace(self, mask: Tensor) -> None:
        """Hold exactly the entries of an n×L mask over this rank's images, in the order of its shard."""
        self.keys = np.flatnonzero(mask.cpu().numpy())

    def replace_by_columns(self, masks: Iterable[tuple[int, Tensor]]) -> None:
        """The same for a mask that comes in parts: the first class of each, and n×c entries."""
        keys: list[NDArray[np.int64]] = []
        for first, mask in masks:
            row, column = np.nonzero(mask.cpu().numpy())
            keys.append(row * self._width + column + first)
        self.keys = np.sort(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)

    def replace_by_positives(self, labels: LabelMatrix) -> None:
        """Hold the labels that are known to be present."""
        entry, row = labels.entries(self._shard.index)
        chosen = labels.values[entry] == POSITIVE
        self.keys = row[chosen] * self._width + labels.classes[entry[chosen]]

    def clear(self) -> None:
        """Hold nothing."""
        self.keys = np.empty(0, dtype=np.int64)

    def read(self, index: Tensor) -> Tensor:
        """Which classes of these images are in the set, B×L bool."""
        rows = self._shard.rows(index)
        _, row, label = entries_of(self.keys, rows, self._width)
        dense = np.zeros((len(rows), self._width), dtype=bool)
        dense[row, label] = True
        return torch.from_numpy(dense)

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        keys = []
        for part in parts:
            saved = part.tensors["keys"].numpy()
            index = part.shard.index[saved // self._width]
            mine = np.isin(index, self._shard.index)
            rows = np.searchsorted(self._shard.index, index[mine])
            keys.append(rows * self._width + saved[mine] % self._width)
        self.keys = np.sort(np.concatenate(keys))

    def state_dict(self) -> dict[str, Tensor]:
        """The keys."""
        return {"keys": torch.from_numpy(self.keys)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved keys."""
        self.keys = state["keys"].numpy().copy()
