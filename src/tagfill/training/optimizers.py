"""Optimisers over a classifier: its backbone and its head as groups with learning rates of their own; their state.

A running average of the weights (EMA), which often ranks better than the weights themselves.

    w̄ ← d w̄ + (1 − d) w      after each step t, with d = min(decay, (1 + t) / (10 + t)), which soon forgets early steps

Buffers, such as the statistics of batch normalisation, are copied and not averaged.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from tagfill.models import Classifier


class Optimizer(BaseModel):
    """How weights are stepped."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Annotated[float, Field(gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of sgd
    head_multiplier: Annotated[float, Field(gt=0)] = 1.0  # learning rate of the head over that of the backbone
    decay_vectors: bool = True  # whether biases and normalisation weights decay too


def build_optimizer(settings: Optimizer, module: Classifier) -> torch.optim.Optimizer:
    """An optimiser over the weights that train; each group remembers its own multiple of the learning rate."""
    parts: list[tuple[Iterable[nn.Parameter], float]] = [(module.head.parameters(), settings.head_multiplier)]
    if module.backbone is not None:
        parts.insert(0, (module.backbone.parameters(), 1.0))
    groups: list[dict[str, Any]] = []
    for parameters, multiplier in parts:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        vectors = [p for p in trained if p.ndim <= 1 and not settings.decay_vectors]
        matrices = [p for p in trained if p.ndim > 1 or settings.decay_vectors]
        for weights, decay in ((matrices, settings.weight_decay), (vectors, 0.0)):
            if weights:
                groups.append({"params": weights, "weight_decay": decay, "multiplier": multiplier})
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(groups, lr=settings.lr)


def state_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """An optimiser's state as named tensors, and the plain values of its groups."""
    content = optimizer.state_dict()
    tensors = {
        f"{number}.{name}": torch.as_tensor(value)
        for number, moments in content["state"].items()
        for name, value in moments.items()
        if value is not None
    }
    return tensors, content["param_groups"]


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """Back from `state_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group to its multiple of `lr`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["multiplier"]


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
