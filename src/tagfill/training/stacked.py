"""One step of several linear heads at once: what they visit, their products, their losses, and their Adam.

    R runs, batches of B images, D features, L classes
    features  gathered once for all runs with the same order of images
    logits    R products B×D · D×L
    loss      one call for all runs with the same loss (`torch.func.vmap`)
    Adam      elementwise over R×L×D weights, some runs at a time so that they stay in the cache of a core

The products are those that each run computes alone, and the operations of Adam are those of `LeanAdam` in the same
order. Only the sums of a loss may be added up in another order, so that weights agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tagfill.data import FeatureCache, FeatureSource

_WEIGHTS_AT_ONCE = 1 << 17  # that Adam updates at a time: 0.5 MB of each of weights, moments and gradients

Loss = Callable[[Tensor, Tensor], Tensor]  # of logits and labels, B×L each


def stack_loss(loss: Loss, runs: int, classes: int) -> Loss:
    """The loss of several runs at once: logits and labels R×B×L to R values.

    A loss that looks at its values to decide what to compute cannot be vectorized, and is called once for each run.

    Args:
        loss: of one run.
        runs: R.
        classes: L.
    """
    vectorized: Loss = torch.func.vmap(loss)
    if runs > 1:
        try:
            vectorized(torch.zeros(runs, 2, classes), torch.zeros(runs, 2, classes, dtype=torch.int8))
            return vectorized
        except RuntimeError:
            pass
    return lambda logits, labels: torch.stack([loss(*own) for own in zip(logits, labels, strict=True)])


@dataclass(frozen=True)
class Visits:
    """Which images R runs visit in an epoch, and where their features are.

    Attributes:
        cache: the features.
        index: R×N positions in the training set, in the order of visits.
        batches: parts of the N visits.
        orders: for each run, which of the U different orders it has.
        views: names of the views.
        drawn: U×N, the view of each visit.
        at: U×N, its position in that view.
        labels: dense labels of the training set, one table for each set of labels.
        tables: for each run, its table of labels.
    """

    cache: FeatureCache
    index: Tensor
    batches: list[slice]
    orders: list[int]
    views: list[str]
    drawn: NDArray[np.int64]
    at: NDArray[np.int64]
    labels: list[Tensor]
    tables: list[int]

    @classmethod
    def plan(
        cls,
        epoch: int,
        batches: Sequence[Sequence[NDArray[np.int64]]],
        sources: Sequence[FeatureSource],
        labels: Sequence[Tensor],
        cache: FeatureCache,
    ) -> Visits:
        """The visits of an epoch.

        Args:
            epoch: from 1.
            batches: of each run, all of the same sizes.
            sources: of each run, with the same views.
            labels: of each run, N×L; runs with the same labels should give the same tensor.
            cache: the features.
        """
        ends = np.cumsum([0, *map(len, batches[0])]).tolist()
        index = np.stack([np.concatenate(own) for own in batches])
        found: dict[bytes, int] = {}
        unique: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        orders, tables = [], []
        known: list[Tensor] = []
        for source, order, table in zip(sources, index, labels, strict=True):
            views, drawn, at = source.locate(order, epoch)
            key = drawn.tobytes() + at.tobytes()
            if key not in found:
                found[key] = len(unique)
                unique.append((drawn, at))
            orders.append(found[key])
            number = next((number for number, other in enumerate(known) if other is table), len(known))
            if number == len(known):
                known.append(table)
            tables.append(number)
        drawn, at = (np.stack(part) for part in zip(*unique, strict=True))
        parts = [slice(first, last) for first, last in pairwise(ends)]
        return cls(cache, torch.from_numpy(index), parts, orders, views, drawn, at, known, tables)

    def read(self, batch: slice) -> tuple[list[Tensor], Tensor]:
        """The features of a batch of each run, B×D, and their labels, R×B×L."""
        drawn, at = self.drawn[:, batch], self.at[:, batch]
        gathered = self.cache.gather(self.views, drawn.ravel(), at.ravel(), maps=False)
        features = list(gathered.view(*drawn.shape, -1))
        index = self.index[:, batch]
        if len(self.labels) == 1:
            labels = self.labels[0][index]
        else:
            labels = torch.stack([self.labels[table][own] for table, own in zip(self.tables, index, strict=True)])
        return [features[order] for order in self.orders], labels


class StackedLinear:
    """The linear layers of several runs, with their Adam or AdamW.

    Args:
        layers: of R runs; their weights are copied, and `store` copies them back.
        optimizers: of the same runs, likewise; they differ in nothing but their learning rates.
    """

    def __init__(self, layers: Sequence[nn.Linear], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._weight = _StackedWeight([layer.weight for layer in layers], optimizers)
        self._bias = _StackedWeight([layer.bias for layer in layers], optimizers)
        self._transposed = [weight.t() for weight in self._weight.values]
        classes, channels = self._weight.values.shape[1:]
        self._runs_at_once = max(1, _WEIGHTS_AT_ONCE // (classes * channels))

    @torch.no_grad()
    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Logits, R×B×L, of B×D features for each run."""
        runs = zip(self._bias.values, features, self._transposed, strict=True)
        return torch.stack([torch.addmm(bias, inputs, weight) for bias, inputs, weight in runs])

    @torch.no_grad()
    def step(self, features: Sequence[Tensor], slope: Tensor, rates: Tensor) -> None:
        """Step with the gradient of the logits.

        Args:
            features: B×D for each run.
            slope: R×B×L, the gradient.
            rates: R, the learning rates.
        """
        self._weight.advance(rates)
        self._bias.advance(rates)
        self._bias.step(slice(None), slope.sum(1))
        for first in range(0, len(features), self._runs_at_once):
            part = slice(first, first + self._runs_at_once)
            gradient = self._weight.gradient[part]
            for out, own, inputs in zip(gradient, slope[part], features[part], strict=True):
                torch.mm(own.t(), inputs, out=out)
            self._weight.step(part, gradient)

    @torch.no_grad()
    def store(self) -> None:
        """Copy weights and moments back to the runs."""
        self._weight.store()
        self._bias.store()


class _StackedWeight:
    """A weight of several runs with its moments, R×… each; the operations of `LeanAdam`, in the same order."""

    def __init__(self, weights: Sequence[Tensor], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        pairs = list(zip(weights, optimizers, strict=True))
        self._weights = weights
        self._states = [_moments(weight, optimizer) for weight, optimizer in pairs]
        groups = [_group(weight, optimizer) for weight, optimizer in pairs]
        self.values = torch.stack([weight.detach() for weight in weights])
        self._first = torch.stack([state["exp_avg"] for state in self._states])
        self._second = torch.stack([state["exp_avg_sq"] for state in self._states])
        self._steps = int(self._states[0]["step"])
        self.gradient, self._scratch = torch.empty_like(self.values), torch.empty_like(self.values)
        self._multiplier = torch.tensor([group["multiplier"] for group in groups], dtype=torch.float64)
        self._decay, self._eps = groups[0]["weight_decay"], groups[0]["eps"]
        self._beta1, self._beta2 = groups[0]["betas"]
        self._decoupled = isinstance(optimizers[0], torch.optim.AdamW)
        self._shape = (-1,) + (1,) * (self.values.ndim - 1)

    def advance(self, rates: Tensor) -> None:
        """Begin a step with these learning rates."""
        self._steps += 1
        rates = rates * self._multiplier
        self._move = (-rates / (1 - self._beta1**self._steps)).float().view(self._shape)
        self._shrink = (1 - rates * self._decay).float().view(self._shape)
        self._spread = (1 - self._beta2**self._steps) ** 0.5

    def step(self, part: slice, gradient: Tensor) -> None:
        """Step some of the runs."""
        values, first, second, scratch = (
            table[part] for table in (self.values, self._first, self._second, self._scratch)
        )
        if self._decay and self._decoupled:
            values.mul_(self._shrink[part])
        elif self._decay:
            gradient = gradient.add(values, alpha=self._decay)
        first.lerp_(gradient, 1 - self._beta1)
        second.mul_(self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
        divisor = torch.sqrt(second, out=scratch).div_(self._spread).add_(self._eps)
        values.addcdiv_(first * self._move[part], divisor)

    def store(self) -> None:
        """Copy the values and moments back to the runs."""
        runs = zip(self._weights, self._states, self.values, self._first, self._second, strict=True)
        for weight, state, values, first, second in runs:
            weight.data.copy_(values)
            state["exp_avg"].copy_(first)
            state["exp_avg_sq"].copy_(second)
            state["step"].fill_(float(self._steps))


def _moments(weight: Tensor, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimizer for one of its weights: the number of steps and both moments."""
    state: dict[str, Tensor] = optimizer.state[weight]
    if not state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
    return state


def _group(weight: Tensor, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The settings of an optimizer for one of its weights."""
    return next(group for group in optimizer.param_groups if any(weight is other for other in group["params"]))
