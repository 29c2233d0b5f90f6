"""Labels that were found by looking: a sparse list of pseudo-labels, with the cell that each was found in.

11 bytes a label, and at most `limit` labels an image, whatever the number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import UNKNOWN
from tagfill.memory.shard import SavedPart, Shard
from tagfill.memory.sparse import entries_of

_PARTS = ("keys", "values", "cells")


class FoundLabels:
    """Pseudo-labels of this rank's images, by keys image·L + class, ascending.

    Attributes:
        made: whether somebody has looked, also if nothing was found.
    """

    def __init__(self, shard: Shard, width: int) -> None:
        self._shard, self._width = shard, width
        self.made = False
        self.keys = np.empty(0, dtype=np.int64)
        self.values = np.empty(0, dtype=np.int8)
        self.cells = np.empty(0, dtype=np.int16)

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def bytes(shard: Shard, width: int, limit: int) -> int:
        """What the lists of a shard take at most."""
        return 11 * len(shard) * min(limit, width)

    def replace(
        self,
        image: NDArray[np.int64],
        label: NDArray[np.int64],
        value: NDArray[np.int8],
        cell: NDArray[np.int16],
    ) -> None:
        """Hold exactly these labels, of those the ones that are about this rank's images."""
        mine = np.isin(image, self._shard.index)
        keys = (image * self._width + label)[mine]
        order = np.argsort(keys, kind="stable")
        self.keys, self.values, self.cells = keys[order], value[mine][order], cell[mine][order]
        self.made = True

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The labels of these images, B×L int8 with -1 for none, and the cells that they were found in, B×L."""
        images = self._shard.index[self._shard.rows(index)]
        entry, row, label = entries_of(self.keys, images, self._width)
        labels = np.full((len(images), self._width), UNKNOWN, dtype=np.int8)
        cells = np.zeros((len(images), self._width), dtype=np.int16)
        labels[row, label], cells[row, label] = self.values[entry], self.cells[entry]
        return torch.from_numpy(labels), torch.from_numpy(cells)

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        keys, values, cells = (np.concatenate([part.tensors[name].numpy() for part in parts]) for name in _PARTS)
        self.replace(keys // self._width, keys % self._width, values, cells)
        self.made = any(bool(part.tensors["made"]) for part in parts)

    def state_dict(self) -> dict[str, Tensor]:
        """The list."""
        return {**{name: torch.from_numpy(getattr(self, name)) for name in _PARTS}, "made": torch.tensor(self.made)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back a saved list."""
        for name in _PARTS:
            setattr(self, name, state[name].numpy().copy())
        self.made = bool(state["made"])
