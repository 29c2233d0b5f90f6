"""Optimisers of a table of which a step has gradients of a few rows, and none of the others.

dense_adam   every row steps; a row without a gradient has a gradient of zero
sparse_adam  rows without a gradient stand still, and so do their moments
sgd          the same, without moments

Dense Adam follows `torch.optim.Adam` operation by operation and ends with the same bits:

    m ← m + (1−β₁)(g − m)      v ← β₂ v + (1−β₂) g²      x ← x − lr / (1−β₁ᵗ) · m / (√v / √(1−β₂ᵗ) + ε)

A gradient of zero needs no table of its own, and a block of rows goes through all of this while it is in the cache.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

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
