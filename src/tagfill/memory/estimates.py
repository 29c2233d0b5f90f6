"""ROLE's free table of label estimates, q = σ(φ), trained beside the classifier.

The table has an Adam of its own. It is a dense one, as published: a row that is not in the batch has no
gradient but keeps moving by its first moment for some thirty steps, which carries most of what a visit does.
Memory is therefore three n×L tables of float32, and every step updates all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.draws import generator
from tagfill.memory.shard import SavedPart, Shard


def logit(probability: float) -> float:
    """The inverse of the sigmoid."""
    return math.log(probability / (1 - probability))


class Estimates:
    """Label estimates as logits, one row an image of this rank.

    Unknown entries start at random with q in [0.4, 0.6]; what was observed starts at 0.995 or 0.005 and is not
    held there.
    """

    def __init__(self, labels: LabelMatrix, shard: Shard, *, seed: int) -> None:
        self._shard = shard
        self.values = torch.nn.Parameter(torch.empty(len(shard), labels.width))
        self.values.grad = torch.zeros_like(self.values)
        self._adam = torch.optim.Adam([self.values], foreach=False)
        bound = logit(0.6)
        with torch.no_grad():
            for row, index in enumerate(shard.index):
                start = generator(seed, "estimates", index=int(index)).uniform(-bound, bound, labels.width)
                known = labels.rows(np.array([index]))[0]
                start[known == POSITIVE] = logit(0.995)
                start[known == NEGATIVE] = logit(0.005)
                self.values[row] = torch.from_numpy(start)

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard) -> int:
        """What the table, its gradient and the two moments of Adam take."""
        return 4 * 4 * len(shard) * labels.width

    def read(self, index: Tensor) -> Tensor:
        """The estimates of these images, as B×L logits."""
        return self.values.detach()[torch.from_numpy(self._shard.rows(index))]

    def step(self, index: Tensor, gradient: Tensor, lr: float) -> None:
        """One step of Adam over the whole table, with a gradient (B×L) for these images and none for the others."""
        assert self.values.grad is not None
        rows = torch.from_numpy(self._shard.rows(index))
        self.values.grad.zero_()
        self.values.grad[rows] = gradient.float().cpu()
        self._adam.param_groups[0]["lr"] = lr
        self._adam.step()

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept; all have taken the same number of steps."""
        first = parts[0].tensors
        self.load_state_dict(
            {name: self._shard.collect(parts, name) if value.ndim else value for name, value in first.items()}
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The table and Adam's moments."""
        moments = self._adam.state[self.values]
        return {"values": self.values.detach(), **{f"adam.{name}": value for name, value in moments.items()}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back the table and the moments."""
        with torch.no_grad():
            self.values.copy_(state["values"])
        moments = {
            name.removeprefix("adam."): value.clone() for name, value in state.items() if name.startswith("adam.")
        }
        if moments:
            self._adam.state[self.values] = moments
