"""ROLE's table of label estimates, q = σ(φ), trained beside the classifier by an optimizer of its own.

A step has gradients for the rows of a batch and none for the others:

    dense_adam   as published: a row outside the batch has a gradient of zero, but its first moment keeps moving it for
                 some thirty steps, which carries most of the effect of a visit
    sparse_adam  rows outside the batch and their moments do not change: the least work, and about ten times weaker
                 per epoch
    sgd          rows outside the batch do not change, and there are no moments

Dense Adam is that of `torch.optim.Adam`:

    m ← m + (1−β₁)(g − m)      v ← β₂ v + (1−β₂) g²      x ← x − lr / (1−β₁ᵗ) · m / (√v / √(1−β₂ᵗ) + ε)

Updating the whole table in every step would take longer than the classifier does. A row that was last visited in step t
has no gradient since then, so its moments after k more steps are β₁ᵏ m and β₂ᵏ v, and it has moved by

    m Σ_{j=1..k} lr_{t+j} β₁ʲ / (1−β₁ᵗ⁺ʲ) / (√v · β₂^{j/2} / √(1−β₂ᵗ⁺ʲ) + ε)

which is computed when the row is read. All terms after the first 160 together are less than β₁¹⁶⁰ < 2⁻²⁴ of the sum,
below the precision of float32, and are left out. With r = ε / √v, wⱼ = lr_{t+j} β₁ʲ / (1−β₁ᵗ⁺ʲ) and
aⱼ = β₂^{j/2} / √(1−β₂ᵗ⁺ʲ), the sum is a power series whose coefficients are the same for all classes of a row:

    Σ wⱼ / (aⱼ √v + ε) = 1/√v · Σ_k (−r)ᵏ Σⱼ wⱼ / aⱼᵏ⁺¹

The inner sums of a step t grow by one term with each later step, and six of them are enough unless √v is almost zero.
The result is that of updating the whole table, up to rounding.

With many classes an image keeps estimates of k of them: its annotated ones, and those that the classifier finds most
likely at its first visit. From then on all others are estimated as absent with q = 1e-5. They cannot stay at the 0.5
that unknown entries start from: over thousands of classes that would count as thousands of positives per image, against
the few that are expected, and no kept estimate could make up for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.memory.base import Field, Rows, Shard, Shared, Store, sub_state
from tagfill.memory.scores import check_classes_per_image, top_classes
from tagfill.rng import uniform_rows

EstimateOptimizer = Literal["dense_adam", "sparse_adam", "sgd"]

_MOMENTS = {"dense_adam": 2, "sparse_adam": 2, "sgd": 0}  # tables that the optimizer keeps
_CERTAIN = 1e-5  # the estimate of a class that is not kept; also how close to 0 or 1 a new stage may start
_ROWS_PER_BLOCK = 4096


def logit(probability: float) -> float:
    """The inverse of the sigmoid."""
    return math.log(probability / (1 - probability))


class Estimates(Store):
    """Label estimates as logits, one row per image of this rank.

    Unknown entries start at random with q in [0.4, 0.6]; observed ones start at 0.995 or 0.005 and may move too.

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

    values: Tensor
    classes: Tensor | None = None

    def __init__(
        self,
        labels: LabelMatrix,
        shard: Shard,
        *,
        seed: int,
        optimizer: EstimateOptimizer = "dense_adam",
        count: int | None = None,
    ) -> None:
        if count is None:
            super().__init__(shard, values=Rows((labels.width,)))
        else:
            check_classes_per_image(labels, count, "estimates")
            super().__init__(shard, values=Rows((count,)), classes=Rows((count,), torch.int32, fill=-1))
        self._labels, self._seed = labels, seed
        self._optimizer_name: EstimateOptimizer = optimizer

    @property
    def bytes(self) -> int:
        """Bytes of the table, of the kept classes, and of the optimizer's moments."""
        values = self._fields["values"].bytes(len(self._shard))
        last_steps = 8 * len(self._shard) if self._optimizer_name == "dense_adam" else 0
        return super().bytes + _MOMENTS[self._optimizer_name] * int(values) + last_steps

    def _initialize(self) -> None:
        self._optimizer = make_optimizer(self.values, self._optimizer_name)
        if self.classes is None:
            for begin in range(0, len(self._shard), _ROWS_PER_BLOCK):
                rows = torch.arange(begin, min(begin + _ROWS_PER_BLOCK, len(self._shard)))
                self.values[rows] = self._start(rows)

    def read(self, index: Tensor) -> Tensor:
        """The estimates of these images, as B×L logits."""
        rows = self._rows(index)
        if self.classes is None:
            return self._optimizer.read(rows)
        new = self.classes[rows, 0] < 0
        dense = torch.full((len(rows), self._labels.width), logit(_CERTAIN))
        dense[new] = self._start(rows[new])
        seen = rows[~new]
        dense[~new] = dense[~new].scatter(1, self.classes[seen].long(), self._optimizer.read(seen))
        return dense

    def keep(self, index: Tensor, logits: Tensor) -> None:
        """Choose the classes that images on their first visit keep, by the classifier's B×L logits."""
        if self.classes is None:
            return
        rows = self._rows(index)
        new = self.classes[rows, 0] < 0
        if not bool(new.any()):
            return
        first = rows[new]
        annotated = torch.from_numpy(self._labels.rows(self._shard.index[first.numpy()]) == POSITIVE)
        chosen = top_classes(logits.float().sigmoid().cpu()[new], annotated, self.classes.shape[1])
        self.classes[first] = chosen.int()
        self.values[first] = self._start(first).gather(1, chosen)

    def step(self, index: Tensor, gradient: Tensor, lr: float) -> None:
        """Step with a gradient (B×L) for these images and none for the others; only kept classes move."""
        rows, gradient = self._rows(index), gradient.float().cpu()
        if self.classes is not None:
            gradient = gradient.gather(1, self.classes[rows].long())
        self._optimizer.step(rows, gradient, lr)

    def warm_start(self) -> None:
        """Start a stage from the estimates of an earlier one: bound their certainty and reset the moments."""
        for begin in range(0, len(self._shard), _ROWS_PER_BLOCK):
            rows = torch.arange(begin, min(begin + _ROWS_PER_BLOCK, len(self._shard)))
            self.values[rows] = self._optimizer.read(rows)
        self.values.clamp_(logit(_CERTAIN), logit(1 - _CERTAIN))
        self._optimizer = make_optimizer(self.values, self._optimizer_name)

    def state_dict(self) -> dict[str, Tensor]:
        """The fields, and the state of the optimizer."""
        return super().state_dict() | {f"adam.{name}": v for name, v in self._optimizer.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load both."""
        super().load_state_dict(state)
        past = sub_state(state, "adam")
        if past:  # a stage may start from the table of one whose optimizer had no state
            self._optimizer.load_state_dict(past)

    def _undeclared(self, name: str, saved: Tensor) -> Field:
        """All processes step with the same learning rates."""
        return Shared(tuple(saved.shape), saved.dtype) if name == "adam.rates" else super()._undeclared(name, saved)

    def _rows(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self._shard.rows(index))

    def _start(self, rows: Tensor) -> Tensor:
        """The initial estimates of these rows, B×L; the same at every call."""
        index = self._shard.index[rows.numpy()]
        start = logit(0.6) * (2 * uniform_rows(self._seed, "estimates", index, self._labels.width) - 1)
        known = self._labels.rows(index)
        start[known == POSITIVE] = logit(0.995)
        start[known == NEGATIVE] = logit(0.005)
        return torch.from_numpy(start).float()


class RowOptimizer(Protocol):
    """Changes a table in place, given gradients for some of its rows."""

    def read(self, rows: Tensor) -> Tensor:
        """The values of these rows after all steps so far, B×c; changes nothing."""
        ...

    def step(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """Step with a gradient (B×c) for these rows, which are all different."""

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and the number of steps, if it has any."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state_dict` returned."""


def make_optimizer(values: Tensor, name: EstimateOptimizer) -> RowOptimizer:
    """A new optimizer of a table."""
    return DenseAdam(values) if name == "dense_adam" else SparseOptimizer(values, name)


_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # torch's defaults
_REACH = 160  # steps for which a row moves noticeably without a gradient
_BLOCK = 1 << 18  # numbers that are computed at a time, 1 MB
_TERMS, _SMALL = 6, 0.05  # of the power series, which ends with 0.05⁶ < 2⁻²⁴
_POWERS = np.arange(1, _TERMS + 1)
_DECAYS = (_BETA1 / _BETA2 ** (_POWERS / 2)) ** np.arange(_REACH, 0, -1)[:, None]  # the oldest step first


class DenseAdam:
    """Adam over all rows, which computes a row only when it is read.

    Args:
        values: n×c float32; row r holds its value after step `row_step[r]`.

    Example:
        >>> table = torch.zeros(3, 2)
        >>> adam = DenseAdam(table)
        >>> adam.step(torch.tensor([1]), torch.tensor([[0.5, -0.5]]), lr=0.1)
        >>> adam.step(torch.tensor([2]), torch.zeros(1, 2), lr=0.1)
        >>> adam.read(torch.arange(3))
        tensor([[ 0.0000,  0.0000],
                [-0.1670,  0.1670],
                [ 0.0000,  0.0000]])
    """

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._first, self._second = torch.zeros_like(values), torch.zeros_like(values)
        self._row_step = np.zeros(len(values), np.int64)
        self._steps = 0
        # by step, of which there is none with number 0: lr, lr / (1−β₁ᵗ) and 1 / √(1−β₂ᵗ)
        self._history = np.zeros((1, 3))
        self._series = np.zeros((1, _TERMS))  # by step, for rows that were last visited in it
        later = np.arange(1, _REACH + 1)
        self._later, self._first_decay, self._second_decay = later, _BETA1**later, _BETA2 ** (later / 2)
        self._just_read: tuple[Tensor, int, tuple[Tensor, Tensor, Tensor]] | None = None

    def read(self, rows: Tensor) -> Tensor:
        """The values of these rows after all steps so far, B×c; changes nothing."""
        return self._now(rows)[0].clone()

    def step(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """Step with a gradient (B×c) for these rows, which are all different, and zero for the others."""
        values, first, second = self._now(rows)
        self._just_read = None
        self._steps += 1
        self._remember(lr)
        first.lerp_(gradient, 1 - _BETA1)
        second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        denominator = second.sqrt().div_((1 - _BETA2**self._steps) ** 0.5).add_(_EPS)
        values.addcdiv_(first, denominator, value=-lr / (1 - _BETA1**self._steps))
        self._values[rows], self._first[rows], self._second[rows] = values, first, second
        self._row_step[rows.numpy()] = self._steps

    def _now(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values and moments of these rows after all steps so far; those that were just read are not computed again."""
        if self._just_read is not None:
            read, steps, state = self._just_read
            if steps == self._steps and torch.equal(read, rows):
                return state
        values, first, second = self._values[rows], self._first[rows], self._second[rows]
        since = self._row_step[rows.numpy()]
        size = max(1, _BLOCK // (_REACH * max(values.shape[1], 1)))
        for at in range(0, len(rows), size):
            part = slice(at, at + size)
            values[part] -= first[part] * self._movement(since[part], second[part])
        elapsed = torch.from_numpy(self._steps - since)[:, None].double()
        first *= (_BETA1**elapsed).float()
        second *= (_BETA2**elapsed).float()
        self._just_read = rows, self._steps, (values, first, second)
        return values, first, second

    def _movement(self, since: NDArray[np.int64], second: Tensor) -> Tensor:
        """The sum in the formula above.

        Args:
            since: B, the last step of each row.
            second: B×c, v after that step.

        Returns:
            B×c.
        """
        elapsed = np.minimum(self._steps - since, _REACH)
        spread = torch.where(second > 0, second.sqrt(), 1.0)  # entries without a gradient so far do not move
        ratio = _EPS / spread
        coefficients = torch.from_numpy(self._series[since].astype(np.float32))
        total = coefficients[:, -1:].expand_as(ratio)
        for number in range(_TERMS - 2, -1, -1):
            total = torch.addcmul(coefficients[:, number, None], total, ratio)
        moved = total / spread
        least = _BETA2 ** (elapsed / 2) * self._history[since + elapsed, 2]  # the smallest aⱼ
        small = ratio > torch.from_numpy(_SMALL * least).float()[:, None]
        rows = small.nonzero()[:, 0].numpy()
        if len(rows):
            moved[small] = self._long_sum(since[rows], spread[small])
        return moved

    def _long_sum(self, since: NDArray[np.int64], spread: Tensor) -> Tensor:
        """The sum in the formula above, term by term, for n entries with √v almost zero."""
        steps = since[:, None] + self._later
        _, scale, root = self._history[np.where(steps <= self._steps, steps, 0)].transpose(2, 0, 1)
        divisors = root * self._second_decay * spread.double().numpy()[:, None] + _EPS
        return torch.from_numpy((scale * self._first_decay / divisors).sum(1).astype(np.float32))

    def _remember(self, lr: float) -> None:
        """Keep what all rows need to know about this step, and add its term to the series of the steps before it."""
        if self._steps >= len(self._history):
            self._history = np.concatenate([self._history, np.zeros((self._steps, 3))])
            self._series = np.concatenate([self._series, np.zeros((self._steps, _TERMS))])
        self._history[self._steps] = _scales(np.array([lr]), np.array([self._steps]))
        first = max(self._steps - _REACH, 0)
        self._series[first : self._steps] += (_DECAYS * _terms(self._history[self._steps]))[first - self._steps :]

    def state_dict(self) -> dict[str, Tensor]:
        """Both moments, the last step of each row, the number of steps, and their learning rates."""
        return {
            "step": torch.tensor(float(self._steps)),
            "exp_avg": self._first,
            "exp_avg_sq": self._second,
            "row_step": torch.from_numpy(self._row_step),
            "rates": torch.from_numpy(self._history[: self._steps + 1, 0].copy()),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state_dict` returned, or the state of version 0.1, in which all rows are up to date."""
        last, self._just_read = int(state["step"]), None
        self._first.copy_(state["exp_avg"])
        self._second.copy_(state["exp_avg_sq"])
        self._row_step[:] = state["row_step"].numpy() if "row_step" in state else last
        rates = state["rates"].numpy() if "rates" in state else np.zeros(last + 1)
        self._history, self._steps = np.zeros((last + 1, 3)), last
        self._history[1:] = _scales(rates[1:], np.arange(1, last + 1))
        self._series, terms = np.zeros((last + 1, _TERMS)), _terms(self._history)
        for later in range(1, min(_REACH, last) + 1):  # in the order in which the steps were taken
            self._series[: last + 1 - later] += _DECAYS[-later] * terms[later:]


def _scales(lr: NDArray[np.float64], step: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each step t: lr, lr / (1−β₁ᵗ) and 1 / √(1−β₂ᵗ), n×3."""
    return np.stack([lr, lr / (1 - _BETA1**step), (1 - _BETA2**step) ** -0.5], axis=1)


def _terms(scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """What steps add to the coefficients of the power series, …×`_TERMS`, for what `_scales` returned."""
    signs = (-1.0) ** (_POWERS - 1)
    return signs * scales[..., 1, None] * np.maximum(scales[..., 2, None], 1.0) ** -_POWERS


class SparseOptimizer:
    """Steps of only those rows that have a gradient, by an optimizer of torch for sparse gradients.

    Args:
        values: n×c float32; changed by every step.
        name: `sparse_adam` or `sgd`.
    """

    def __init__(self, values: Tensor, name: EstimateOptimizer) -> None:
        self._values = torch.nn.Parameter(values)  # the same memory
        self._optimizer: torch.optim.Optimizer = (
            torch.optim.SparseAdam([self._values])
            if name == "sparse_adam"
            else torch.optim.SGD([self._values], foreach=False)
        )

    def read(self, rows: Tensor) -> Tensor:
        """The values of these rows, B×c."""
        return self._values.detach()[rows]

    def step(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """Step with a gradient (B×c) for these rows, which are all different."""
        shape = tuple(self._values.shape)
        self._values.grad = torch.sparse_coo_tensor(rows[None], gradient, shape, check_invariants=False)
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.step()
        self._values.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and the number of steps; nothing before the first step, and nothing for `sgd`."""
        return {name: torch.as_tensor(value) for name, value in self._optimizer.state[self._values].items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state_dict` returned."""
        past = {name: value.clone() if value.ndim else int(value) for name, value in state.items()}
        self._optimizer.state[self._values] = past
