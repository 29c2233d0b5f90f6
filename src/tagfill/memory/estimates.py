"""ROLE's free table of label estimates, q = σ(φ), trained beside the classifier by an optimiser of its own.

dense_adam   as published: a row that is not in the batch has no gradient but keeps moving by its first moment for
             some thirty steps, which carries most of what a visit does; every step updates the whole table
sparse_adam  rows outside the batch stand still: quick for a large table, and about ten times as weak an epoch
sgd          rows outside the batch stand still, and there are no moments

With many classes an image keeps estimates of k of them: its annotated ones, and those that the classifier finds most
likely at its first visit. From then on the rest is estimated as absent, q = 1e-5 for good. It cannot be the 0.5 that
unknown entries start from: over thousands of classes that would count as thousands of positives an image, against the
few that are expected, and no kept estimate could make up for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.draws import uniform_rows
from tagfill.memory.kept_scores import check_room, highest
from tagfill.memory.shard import SavedPart, Shard, below
from tagfill.memory.table_steps import TABLES, TableOptimizer, steps_of

_CERTAIN = 1e-5  # a stored probability closer to 0 or 1 than this is moved here; that of a class that is not kept
_BLOCK = 4096


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
        count: k, classes that an image keeps; None keeps all L.

    Attributes:
        values: n×L, or n×k in the order of `classes`.
        classes: n×k int32, ascending, -1 before the first visit; None where all are kept.
    """

    def __init__(
        self,
        labels: LabelMatrix,
        shard: Shard,
        *,
        seed: int,
        optimizer: TableOptimizer = "dense_adam",
        count: int | None = None,
    ) -> None:
        if count is not None:
            check_room(labels, count, "estimates")
        self._labels, self._shard, self._seed = labels, shard, seed
        self._optimizer: TableOptimizer = optimizer
        self.values = torch.zeros(len(shard), labels.width if count is None else count)
        self.classes = None if count is None else torch.full((len(shard), count), -1, dtype=torch.int32)
        self._steps = steps_of(self.values, optimizer)
        for begin in range(0, len(shard) if count is None else 0, _BLOCK):
            rows = torch.arange(begin, min(begin + _BLOCK, len(shard)))
            self.values[rows] = self._start(rows)

    @staticmethod
    def bytes(
        labels: LabelMatrix, shard: Shard, optimizer: TableOptimizer = "dense_adam", count: int | None = None
    ) -> int:
        """What the table takes, with its moments where the optimiser has them and the list of kept classes."""
        tables = TABLES[optimizer] + (count is not None)
        return 4 * tables * len(shard) * (labels.width if count is None else count)

    def read(self, index: Tensor) -> Tensor:
        """The estimates of these images, as B×L logits."""
        rows = self._rows(index)
        if self.classes is None:
            return self.values[rows]
        new = self.classes[rows, 0] < 0
        dense = torch.full((len(rows), self._labels.width), logit(_CERTAIN))
        dense[new] = self._start(rows[new])
        seen = rows[~new]
        dense[~new] = dense[~new].scatter(1, self.classes[seen].long(), self.values[seen])
        return dense

    def keep(self, index: Tensor, logits: Tensor) -> None:
        """Settle which classes these images keep, if this is their first visit, by the classifier's B×L logits."""
        if self.classes is None:
            return
        rows = self._rows(index)
        new = self.classes[rows, 0] < 0
        first = rows[new]
        annotated = torch.from_numpy(self._labels.rows(self._shard.index[first.numpy()]) == POSITIVE)
        chosen = highest(logits.float().sigmoid().cpu()[new], annotated, self.classes.shape[1])
        self.classes[first] = chosen.int()
        self.values[first] = self._start(first).gather(1, chosen)

    def step(self, index: Tensor, gradient: Tensor, lr: float) -> None:
        """One step with a gradient (B×L) for these images and none for the others; only what is kept moves."""
        rows, gradient = self._rows(index), gradient.float().cpu()
        if self.classes is not None:
            gradient = gradient.gather(1, self.classes[rows].long())
        self._steps.step(rows, gradient, lr)

    def warm_start(self) -> None:
        """Begin a stage from the probabilities of an earlier one: certainty is bounded, moments begin anew."""
        self.values.clamp_(logit(_CERTAIN), logit(1 - _CERTAIN))
        self._steps = steps_of(self.values, self._optimizer)

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept; all have taken the same number of steps."""
        first = parts[0].tensors
        self.load_state_dict(
            {name: self._shard.collect(parts, name) if value.ndim else value for name, value in first.items()}
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The table, the classes that are kept, and the moments of its optimiser."""
        kept = {} if self.classes is None else {"classes": self.classes}
        return {"values": self.values, **kept} | {f"adam.{n}": value for n, value in self._steps.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back the table, the classes and the moments."""
        self.values.copy_(state["values"])
        if self.classes is not None:
            self.classes.copy_(state["classes"])
        past = below(state, "adam")
        if past:  # a stage may begin from the table of one whose optimiser had none
            self._steps.load_state_dict(past)

    def _rows(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self._shard.rows(index))

    def _start(self, rows: Tensor) -> Tensor:
        """Where the estimates of these rows begin, B×L; the same whenever it is asked for."""
        index = self._shard.index[rows.numpy()]
        start = logit(0.6) * (2 * uniform_rows(self._seed, "estimates", index, self._labels.width) - 1)
        known = self._labels.rows(index)
        start[known == POSITIVE] = logit(0.995)
        start[known == NEGATIVE] = logit(0.005)
        return torch.from_numpy(start).float()
