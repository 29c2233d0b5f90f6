"""A running average of each image's predicted probabilities.

    s⁰ = 1[z = 1],   sᵗ = μ sᵗ⁻¹ + (1 − μ) fᵗ

Kept in half precision, n×L; averages are taken in single precision.


Running scores of a few classes an image, where those of all classes would not fit.

An image keeps the k classes that score highest after its first visit, s¹ = μ s⁰ + (1 − μ) f¹, its annotated classes
first, and never others. On those it holds exactly what `Scores` would; the score of every other class is zero.

Optimisers of a table of which a step has gradients of a few rows, and none of the others.

dense_adam   every row steps; a row without a gradient has a gradient of zero
sparse_adam  rows without a gradient stand still, and so do their moments
sgd          the same, without moments

Dense Adam follows `torch.optim.Adam` operation by operation and ends with the same bits:

    m ← m + (1−β₁)(g − m)      v ← β₂ v + (1−β₂) g²      x ← x − lr / (1−β₁ᵗ) · m / (√v / √(1−β₂ᵗ) + ε)

A gradient of zero needs no table of its own, and a block of rows goes through all of this while it is in the cache.

ROLE's free table of label estimates, q = σ(φ), trained beside the classifier by an optimiser of its own.

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
from typing import Literal, Protocol

import torch
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.memory.base import SavedPart, Shard, sub_state
from tagfill.rng import uniform_rows


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


def highest(scores: Tensor, annotated: Tensor, count: int) -> Tensor:
    """The classes to keep of each image: annotated ones, then those of the highest scores.

    Args:
        scores: B×L.
        annotated: B×L bool, at most `count` an image.
        count: k.

    Returns:
        B×k, ascending; among equal scores the class that comes first is kept.

    Example:
        >>> highest(torch.tensor([[0.1, 0.9, 0.5, 0.5]]), torch.tensor([[True, False, False, False]]), 3).tolist()
        [[0, 1, 2]]
    """
    order = torch.argsort(scores + 2.0 * annotated, dim=1, descending=True, stable=True)
    return order[:, :count].sort(1).values


def check_room(labels: LabelMatrix, count: int, what: str) -> None:
    """Refuse a k below what some image has annotated."""
    most = int(labels.positives_per_image().max(initial=0))
    if count < max(most, 1):
        raise TagfillError(
            f"The {what} are to keep {count} classes an image, but an image has {most} annotated ones; set "
            f"classes_per_image to {max(most, 1)} or more."
        )


class TopKScores:
    """Running probabilities of k classes an image, one row an image of this rank.

    Attributes:
        classes: n×k int32, ascending; -1 for an image that was not visited yet.
        values: n×k float16.
        visited: whether any image was seen yet.
    """

    def __init__(self, labels: LabelMatrix, shard: Shard, *, momentum: float, count: int) -> None:
        check_room(labels, count, "scores")
        self.momentum = momentum
        self.visited = False
        self._labels, self._shard = labels, shard
        self.classes = torch.full((len(shard), count), -1, dtype=torch.int32)
        self.values = torch.zeros(len(shard), count, dtype=torch.float16)

    @staticmethod
    def bytes(shard: Shard, count: int) -> int:
        """What classes and scores of a shard take."""
        return 6 * len(shard) * count

    def read(self, index: Tensor) -> Tensor:
        """The scores of these images, B×L float32; zero for classes that are not kept."""
        rows = torch.from_numpy(self._shard.rows(index))
        dense = self._observed(rows).float()
        seen = self.classes[rows, 0] >= 0
        dense[seen] = torch.zeros_like(dense[seen]).scatter(
            1, self.classes[rows[seen]].long(), self.values[rows[seen]].float()
        )
        return dense

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The scores of some classes for all images of this rank, n×c float16, and which of them are kept."""
        values = torch.zeros(len(self._shard), stop - start, dtype=torch.float16)
        kept = torch.zeros(values.shape, dtype=torch.bool)
        row, column = ((self.classes >= start) & (self.classes < stop)).nonzero(as_tuple=True)
        place = row, self.classes[row, column].long() - start
        values[place], kept[place] = self.values[row, column], True
        return values, kept

    def update(self, index: Tensor, probabilities: Tensor) -> None:
        """Move the scores of these images towards new probabilities, B×L."""
        rows, seen = torch.from_numpy(self._shard.rows(index)), probabilities.float().cpu()
        new = self.classes[rows, 0] < 0
        if bool(new.any()):
            annotated = self._observed(rows[new])
            first = self._average(annotated.float(), seen[new])
            self.classes[rows[new]] = highest(first, annotated, self.classes.shape[1]).int()
            self.values[rows[new]] = annotated.half().gather(1, self.classes[rows[new]].long())
        past = self.values[rows].float()
        self.values[rows] = self._average(past, seen.gather(1, self.classes[rows].long()))
        self.visited = True

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        tables = {name: self._shard.collect(parts, name) for name in ("classes", "values")}
        self.load_state_dict({**tables, "visited": parts[0].tensors["visited"]})

    def state_dict(self) -> dict[str, Tensor]:
        """Both tables."""
        return {"classes": self.classes, "values": self.values, "visited": torch.tensor(self.visited)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved tables."""
        self.classes.copy_(state["classes"])
        self.values.copy_(state["values"])
        self.visited = bool(state["visited"])

    def _average(self, past: Tensor, seen: Tensor) -> Tensor:
        return (self.momentum * past + (1 - self.momentum) * seen).half()

    def _observed(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self._labels.rows(self._shard.index[rows.numpy()]) == POSITIVE)


TableOptimizer = Literal["dense_adam", "sparse_adam", "sgd"]
TABLES = {"dense_adam": 3, "sparse_adam": 3, "sgd": 1}  # the table itself, and its moments

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # as everywhere in torch
_BLOCK = 1 << 15  # entries; four tables of as many fit into the cache of a core


class TableSteps(Protocol):
    """Steps of one table, in place."""

    def step(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """Step with a gradient (B×c) for these rows, which are all different."""

    def state_dict(self) -> dict[str, Tensor]:
        """What it remembers between steps."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what was saved."""


def steps_of(values: Tensor, optimizer: TableOptimizer) -> TableSteps:
    """An optimiser without a past."""
    return DenseAdam(values) if optimizer == "dense_adam" else RowSteps(values, optimizer)


class DenseAdam:
    """Adam over all rows.

    Args:
        values: n×c float32, contiguous; changed by every step.

    Example:
        >>> table = torch.zeros(3, 2)
        >>> adam = DenseAdam(table)
        >>> adam.step(torch.tensor([1]), torch.tensor([[0.5, -0.5]]), lr=0.1)
        >>> adam.step(torch.tensor([2]), torch.zeros(1, 2), lr=0.1)
        >>> table
        tensor([[ 0.0000,  0.0000],
                [-0.1670,  0.1670],
                [ 0.0000,  0.0000]])
    """

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._first, self._second = torch.zeros_like(values), torch.zeros_like(values)
        self._steps = 0
        room = torch.empty(min(_BLOCK, values.numel()))  # for denominators; new memory each time would cost more
        tables = (table.view(-1).split(_BLOCK) for table in (values, self._first, self._second))  # type: ignore[no-untyped-call]
        self._blocks = [(x, m, v, room[: len(x)]) for x, m, v in zip(*tables, strict=True)]
        self._nothing = torch.zeros(())

    def step(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """Step with a gradient (B×c) for these rows, which are all different, and zero for the others."""
        self._steps += 1
        values, first, second = self._values[rows], self._first[rows], self._second[rows]
        first.lerp_(gradient, 1 - _BETA1)
        second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        self._move(values, first, second, torch.empty_like(second), lr)
        for block, slow, spread, room in self._blocks:
            slow.lerp_(self._nothing, 1 - _BETA1)
            spread.mul_(_BETA2)
            self._move(block, slow, spread, room, lr)
        self._values[rows], self._first[rows], self._second[rows] = values, first, second

    def _move(self, values: Tensor, first: Tensor, second: Tensor, room: Tensor, lr: float) -> None:
        """Move values by their moments, in place; room is overwritten."""
        denominator = torch.sqrt(second, out=room).div_((1 - _BETA2**self._steps) ** 0.5).add_(_EPS)
        values.addcdiv_(first, denominator, value=-lr / (1 - _BETA1**self._steps))

    def state_dict(self) -> dict[str, Tensor]:
        """Both moments and the number of steps."""
        return {"step": torch.tensor(float(self._steps)), "exp_avg": self._first, "exp_avg_sq": self._second}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what was saved."""
        self._steps = int(state["step"])
        self._first.copy_(state["exp_avg"])
        self._second.copy_(state["exp_avg_sq"])


class RowSteps:
    """Steps of the rows that have a gradient, by an optimiser of torch that takes sparse ones.

    Args:
        values: n×c float32; changed by every step.
        optimizer: `sparse_adam` or `sgd`.
    """

    def __init__(self, values: Tensor, optimizer: TableOptimizer) -> None:
        self._values = torch.nn.Parameter(values)  # the same memory
        self._optimizer: torch.optim.Optimizer = (
            torch.optim.SparseAdam([self._values])
            if optimizer == "sparse_adam"
            else torch.optim.SGD([self._values], foreach=False)
        )

    def step(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """Step with a gradient (B×c) for these rows, which are all different."""
        shape = tuple(self._values.shape)
        self._values.grad = torch.sparse_coo_tensor(rows[None], gradient, shape, check_invariants=False)
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.step()
        self._values.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and the number of steps, as far as there are any."""
        return {name: torch.as_tensor(value) for name, value in self._optimizer.state[self._values].items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what was saved."""
        past = {name: value.clone() if value.ndim else int(value) for name, value in state.items()}
        self._optimizer.state[self._values] = past


_CERTAIN = 1e-5  # a stored probability closer to 0 or 1 than this is moved here; that of a class that is not kept
_ROWS_PER_BLOCK = 4096


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
        for begin in range(0, len(shard) if count is None else 0, _ROWS_PER_BLOCK):
            rows = torch.arange(begin, min(begin + _ROWS_PER_BLOCK, len(shard)))
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
        past = sub_state(state, "adam")
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
