"""Backbones of your own: any module that turns pixels into a grid of features, under a name that you give it.

    pixels in 0…1 (B×3×H×W) → your module → B×D×H'×W'

Scaling pixels further is the module's own business. Its name is what recipes and model folders keep, so it has to be
registered in every process that trains or loads such a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from tagfill.errors import TagfillError

BACKBONES: dict[str, Callable[[], nn.Module]] = {}
"""Functions, or classes of modules, that make your backbones, by name; they come before timm's."""

SIDE = 224  # of the input, where nobody says another


class Own(nn.Module):
    """A module of yours, with what `Backbone` asks of a timm model.

    >>> BACKBONES["stripes"] = lambda: nn.Conv2d(3, 8, kernel_size=16, stride=16)
    >>> Own("stripes").module.out_channels
    8
    >>> del BACKBONES["stripes"]
    """

    output_fmt = "NCHW"

    def __init__(self, name: str) -> None:
        super().__init__()
        module: Any = BACKBONES[name]()
        if not isinstance(module, nn.Module):
            raise TagfillError(
                f"What BACKBONES['{name}'] makes is of type {type(module).__name__}; register a class of modules, or a "
                "function that returns a module."
            )
        self.module = module
        self.pretrained_cfg = {"input_size": (3, SIDE, SIDE), "mean": (0.0,) * 3, "std": (1.0,) * 3}

    def forward_features(self, pixels: Tensor) -> Tensor:
        """B×3×H×W to B×D×H'×W'."""
        features: Tensor = self.module(pixels)
        return features

    def reset_classifier(self, classes: int) -> None:
        """It has none."""


def checkpoint_filter_fn(state: dict[str, Tensor], model: Own) -> dict[str, Tensor]:
    """Weights under the names of your module."""
    return {f"module.{name}": value for name, value in state.items()}
