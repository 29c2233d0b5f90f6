"""Optimizers over a classifier, the running average of its weights, and the state of both.

Backbone and head are groups with learning rates of their own. The average of the weights (EMA) often ranks better than
the weights themselves:

    w̄ ← d w̄ + (1 − d) w      after each step t, with d = min(decay, (1 + t) / (10 + t)), which soon forgets early steps
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from tagfill.models import Classifier


class Optimizer(BaseModel):
    """Settings of the optimizer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Annotated[float, Field(gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of sgd
    head_multiplier: Annotated[float, Field(gt=0)] = 1.0  # learning rate of the head over that of the backbone
    decay_vectors: bool = True  # whether biases and normalization weights decay too


def build_optimizer(settings: Optimizer, module: Classifier, *, scaled: bool = False) -> torch.optim.Optimizer:
    """Build an optimizer over the weights that train; a group's `multiplier` scales the learning rate of the stage.

    If a backbone or its top trains, Adam updates all weights in one fused kernel, which takes a third of the time on
    a CPU and rounds differently in the last bits. A head alone has few weights and gains nothing.

    Args:
        settings: of the optimizer.
        module: the weights.
        scaled: whether gradients are scaled for float16; fused kernels would unscale them after they were clipped.
    """
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
    deep = module.backbone is not None and not module.backbone.frozen
    return kind(groups, lr=settings.lr, fused=True if deep and not scaled else None)


class LeanAdam:
    """Steps an Adam or AdamW of torch on the CPU, with the same operations in the same order and so the same bits.

    For the few weights of a head, `Optimizer.step` takes a third longer: it calls hooks, checks devices and allocates
    new memory in every step. State stays in the optimizer, so that checkpoints do not change.

    Args:
        optimizer: an Adam or AdamW without any of torch's other options, over contiguous float32 weights.
    """

    def __init__(self, optimizer: torch.optim.Adam) -> None:
        self._optimizer = optimizer  # its state and groups are other objects after `load_state_dict`
        largest = max(weight.numel() for group in self.param_groups for weight in group["params"])
        self._scratch = torch.empty(largest)
        self._decoupled = isinstance(optimizer, torch.optim.AdamW)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer."""
        return self._optimizer.param_groups

    @classmethod
    def suits(cls, optimizer: torch.optim.Optimizer) -> bool:
        """Whether it can step an optimizer that `build_optimizer` made."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        return (
            type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
            and not optimizer.defaults["fused"]
            and all(w.device.type == "cpu" and w.dtype == torch.float32 and w.is_contiguous() for w in weights)
        )

    @torch.no_grad()
    def step(self) -> None:
        """Step all weights that have a gradient."""
        states = self._optimizer.state
        for group in self.param_groups:
            (beta1, beta2), lr, eps, decay = group["betas"], group["lr"], group["eps"], group["weight_decay"]
            for weight in group["params"]:
                gradient = weight.grad
                if gradient is None:
                    continue
                state = states[weight]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
                first, second = state["exp_avg"], state["exp_avg_sq"]
                steps = state["step"].add_(1).item()
                if decay and self._decoupled:
                    weight.mul_(1 - lr * decay)
                elif decay:
                    gradient = gradient.add(weight, alpha=decay)
                first.lerp_(gradient, 1 - beta1)
                second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                scratch = self._scratch[: weight.numel()].view(weight.shape)
                divisor = torch.sqrt(second, out=scratch).div_((1 - beta2**steps) ** 0.5).add_(eps)
                weight.addcdiv_(first, divisor, value=-lr / (1 - beta1**steps))


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """The state of an optimizer as named tensors, and the plain values of its groups."""
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
    """Load what `optimizer_state` returned.

    Moments get the memory layout of their weights, which files do not keep: fused kernels read both in the order of
    memory, so that a moment in another layout would belong to other weights.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        weight = weights[int(number)]
        placed = torch.empty_like(weight, dtype=value.dtype).copy_(value) if value.shape == weight.shape else value
        state.setdefault(int(number), {})[name] = placed
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def weight_average(module: nn.Module, decay: float) -> AveragedModel:
    """A copy of a module that holds the average of its weights; buffers are copied and not averaged.

    `AveragedModel` copies the weights in its first update. Here that is the copy made now, so `n_averaged` starts at 1.
    """

    def blend(average: Sequence[Tensor], current: Sequence[Tensor], averaged: Tensor | int) -> None:
        step = int(averaged) - 1
        torch._foreach_lerp_(list(average), list(current), 1 - min(decay, (1 + step) / (10 + step)))

    average = AveragedModel(module, multi_avg_fn=blend).requires_grad_(False)
    average.n_averaged.fill_(1)
    return average


def average_state(average: AveragedModel) -> dict[str, Tensor]:
    """The averages under the names of the module's weights, and the number of updates."""
    return {**average.module.state_dict(), "_steps": average.n_averaged - 1}


def load_average_state(average: AveragedModel, state: dict[str, Tensor]) -> None:
    """Load what `average_state` returned."""
    average.n_averaged.copy_(state["_steps"] + 1)
    average.module.load_state_dict({name: value for name, value in state.items() if name != "_steps"})
