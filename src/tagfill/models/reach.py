"""Which parameters of a model its features depend on.

Some models of timm keep layers for after pooling (ConvNeXt's last norm, MobileNetV3's last convolution) that the grid
of features does not pass. They must not train: there is nothing to learn for them, weight decay would shrink them, and
processes that train together would wait for their gradients.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def beyond(model: nn.Module, features: Tensor) -> list[str]:
    """Names of the parameters that features, computed with a gradient, do not depend on.

    >>> import torch
    >>> model = nn.ModuleDict({"first": nn.Linear(2, 2), "last": nn.Linear(2, 2)})
    >>> beyond(model, model["first"](torch.zeros(1, 2)))
    ['last.weight', 'last.bias']
    """
    met: set[int] = set()
    seen: set[Any] = set()
    ahead: list[Any] = [features.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # where autograd adds up the gradient of a parameter
            met.add(id(node.variable))
        ahead.extend(following for following, _ in node.next_functions)
    return [name for name, parameter in model.named_parameters() if id(parameter) not in met]
