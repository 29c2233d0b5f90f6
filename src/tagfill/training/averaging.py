"""A running average of the weights (EMA), which often ranks better than the weights themselves.

    w̄ ← d w̄ + (1 − d) w      after each step t, with d = min(decay, (1 + t) / (10 + t)), which soon forgets early steps

Buffers, such as the statistics of batch normalisation, are copied and not averaged.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of a module's weights, as a module of its own that can be evaluated and saved."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(module).requires_grad_(False)
        self._decay = decay
        self._steps = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """One more step was taken."""
        decay = min(self._decay, (1 + self._steps) / (10 + self._steps))
        for average, current in zip(self.module.parameters(), module.parameters(), strict=True):
            average.lerp_(current.to(average.dtype), 1 - decay)
        for kept, buffer in zip(self.module.buffers(), module.buffers(), strict=True):
            kept.copy_(buffer)
        self._steps += 1

    def state_dict(self) -> dict[str, Tensor]:
        """The averages and the number of steps."""
        return {**self.module.state_dict(), "_steps": torch.tensor(self._steps)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take them back."""
        self._steps = int(state["_steps"])
        self.module.load_state_dict({name: value for name, value in state.items() if name != "_steps"})
