"""A running average of each image's predicted probabilities.

    s⁰ = 1[z = 1],   sᵗ = μ sᵗ⁻¹ + (1 − μ) fᵗ

Kept in half precision, n×L; averages are taken in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tagfill.contract import POSITIVE, LabelMatrix
from tagfill.memory.shard import SavedPart, Shard


class Scores:
    """Running probabilities, one row an image of this rank.

    Attributes:
        values: n×L float16.
        visited: whether any image was seen yet.
    """

    def __init__(self, labels: LabelMatrix, shard: Shard, *, momentum: float) -> None:
        self.momentum = momentum
        self.visited = False
        self._shard = shard
        self.values = torch.zeros(len(shard), labels.width, dtype=torch.float16)
        for start in range(0, len(shard), 4096):
            observed = labels.rows(shard.index[start : start + 4096]) == POSITIVE
            self.values[start : start + len(observed)] = torch.from_numpy(observed).half()

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard) -> int:
        """What the scores of a shard take."""
        return 2 * len(shard) * labels.width

    def read(self, index: Tensor) -> Tensor:
        """The scores of these images, B×L float32."""
        return self.values[torch.from_numpy(self._shard.rows(index))].float()

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The scores of some classes for all images of this rank, n×c float16, and which of them are kept: all."""
        return self.values[:, start:stop], None

    def update(self, index: Tensor, probabilities: Tensor) -> None:
        """Move the scores of these images towards new probabilities, B×L."""
        rows = torch.from_numpy(self._shard.rows(index))
        average = self.momentum * self.values[rows].float() + (1 - self.momentum) * probabilities.float().cpu()
        self.values[rows] = average.half()
        self.visited = True

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        self.load_state_dict({"values": self._shard.collect(parts, "values"), "visited": parts[0].tensors["visited"]})

    def state_dict(self) -> dict[str, Tensor]:
        """The whole table."""
        return {"values": self.values, "visited": torch.tensor(self.visited)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back a saved table."""
        self.values.copy_(state["values"])
        self.visited = bool(state["visited"])
