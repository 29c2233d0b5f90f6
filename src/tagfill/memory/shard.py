"""Which images' state lives in this process, and how state moves when the number of processes changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Shard:
    """The images of one rank; state is kept in the order of their ascending positions in the training set."""

    def __init__(self, index: NDArray[np.integer]) -> None:
        self.index = np.sort(np.asarray(index, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: Tensor) -> NDArray[np.int64]:
        """Where the state of these images lies in this process."""
        wanted = index.cpu().numpy()
        rows = np.searchsorted(self.index, wanted)
        if len(wanted) and not np.array_equal(self.index[np.minimum(rows, len(self) - 1)], wanted):
            raise IndexError("a batch holds an image whose state is kept by another process")
        return rows

    def collect(self, parts: Sequence[SavedPart], name: str) -> Tensor:
        """The rows of this shard out of a table that several processes saved a part of each.

        Args:
            parts: what each process saved, tensors with a row an image.
            name: of the table.
        """
        wanted = np.concatenate([part.shard.index for part in parts])
        order = np.argsort(wanted)
        rows = order[np.searchsorted(wanted, self.index, sorter=order)]
        return torch.cat([part.tensors[name] for part in parts])[torch.from_numpy(rows)]


@dataclass(frozen=True)
class SavedPart:
    """State that one process saved.

    Attributes:
        shard: the images that it kept.
        tensors: its state, by name.
        files: paths of its state on disk, by name.
    """

    shard: Shard
    tensors: Mapping[str, Tensor]
    files: Mapping[str, Path] = field(default_factory=dict)

    def below(self, name: str) -> SavedPart:
        """The part of one store, under its own names."""
        files = {key: path for key, path in self.files.items() if key == name}
        return SavedPart(self.shard, below(self.tensors, name), files)


def below(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors below a name, under their own names.

    >>> sorted(below({"scores.values": torch.zeros(1), "prior.sums": torch.zeros(1)}, "scores"))
    ['values']
    """
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
