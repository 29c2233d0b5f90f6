"""ROLE's free table of label estimates, q = σ(φ), trained beside the classifier by an optimiser of its own.

dense_adam   as published: a row that is not in the batch has no gradient but keeps moving by its first moment for
             some thirty steps, which carries most of what a visit does; every step updates the whole table
sparse_adam  rows outside the batch stand still: quick for a large table, and about ten times as weak an epoch
sgd          rows outside the batch stand still, and there are no moments
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.draws import uniform_rows
from tagfill.memory.shard import SavedPart, Shard

EstimatesOptimizer = Literal["dense_adam", "sparse_adam", "sgd"]
_TABLES = {"dense_adam": 4, "sparse_adam": 3, "sgd": 1}  # itself, two moments, and the gradient of all rows
_CERTAIN = 1e-5  # a stored probability closer to 0 or 1 than this is moved here


def logit(probability: float) -> float:
    """The inverse of the sigmoid."""
    return math.log(probability / (1 - probability))


class Estimates:
    """Label estimates as logits, one row an image of this rank.

    Unknown entries start at random with q in [0.4, 0.6]; what was observed starts at 0.995 or 0.005 and is not
    held there.

    Args:
        labels: of the training images.
        shard: the images of this rank.
        seed: of the random start.
        optimizer: of the table.
    """

    def __init__(
        self, labels: LabelMatrix, shard: Shard, *, seed: int, optimizer: EstimatesOptimizer = "dense_adam"
    ) -> None:
        self._shard = shard
        self._optimizer = optimizer
        self.values = torch.nn.Parameter(torch.empty(len(shard), labels.width))
        self._begin_steps()
        bound = logit(0.6)
        with torch.no_grad():
            for begin in range(0, len(shard), 4096):
                index = shard.index[begin : begin + 4096]
                start = bound * (2 * uniform_rows(seed, "estimates", index, labels.width) - 1)
                known = labels.rows(index)
                start[known == POSITIVE] = logit(0.995)
                start[known == NEGATIVE] = logit(0.005)
                self.values[begin : begin + len(index)] = torch.from_numpy(start)

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard, optimizer: EstimatesOptimizer = "dense_adam") -> int:
        """What the table takes, with its gradient and the two moments where the optimiser has them."""
        return 4 * _TABLES[optimizer] * len(shard) * labels.width

    def read(self, index: Tensor) -> Tensor:
        """The estimates of these images, as B×L logits."""
        return self.values.detach()[torch.from_numpy(self._shard.rows(index))]

    def step(self, index: Tensor, gradient: Tensor, lr: float) -> None:
        """One step with a gradient (B×L) for these images and none for the others."""
        rows, gradient = torch.from_numpy(self._shard.rows(index)), gradient.float().cpu()
        if self._optimizer == "dense_adam":
            assert self.values.grad is not None
            self.values.grad.zero_()
            self.values.grad[rows] = gradient
        else:
            self.values.grad = torch.sparse_coo_tensor(
                rows[None], gradient, tuple(self.values.shape), check_invariants=False
            )
        self._steps.param_groups[0]["lr"] = lr
        self._steps.step()

    def warm_start(self) -> None:
        """Begin a stage from the probabilities of an earlier one: certainty is bounded, moments begin anew."""
        with torch.no_grad():
            self.values.clamp_(logit(_CERTAIN), logit(1 - _CERTAIN))
        self._begin_steps()

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept; all have taken the same number of steps."""
        first = parts[0].tensors
        self.load_state_dict(
            {name: self._shard.collect(parts, name) if value.ndim else value for name, value in first.items()}
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The table and the moments of its optimiser."""
        moments = {f"adam.{name}": torch.as_tensor(value) for name, value in self._steps.state[self.values].items()}
        return {"values": self.values.detach(), **moments}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back the table and the moments."""
        with torch.no_grad():
            self.values.copy_(state["values"])
        moments = {
            name.removeprefix("adam."): value.clone() for name, value in state.items() if name.startswith("adam.")
        }
        if moments and self._optimizer == "sparse_adam":
            moments["step"] = int(moments["step"])  # type: ignore[assignment]  # as this optimiser keeps it
        if moments:
            self._steps.state[self.values] = moments

    def _begin_steps(self) -> None:
        """An optimiser without a past."""
        self.values.grad = torch.zeros_like(self.values) if self._optimizer == "dense_adam" else None
        self._steps: torch.optim.Optimizer
        if self._optimizer == "dense_adam":
            self._steps = torch.optim.Adam([self.values], foreach=False)
        elif self._optimizer == "sparse_adam":
            self._steps = torch.optim.SparseAdam([self.values])
        else:
            self._steps = torch.optim.SGD([self.values], foreach=False)
