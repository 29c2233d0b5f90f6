"""From what a timm model gives to a grid of features with channels first.

timm's models end in one of three forms, and each model says itself in which:

    NCHW    B×D×H×W, most convolutional networks, and what users register as their own
    NHWC    B×H×W×D, Swin and others that state `output_fmt`
    tokens  B×(P + H·W)×D: `num_prefix_tokens` P of class, distillation and registers, then the patches, row by row,
            of the `grid_size` H×W of the patch embedding

Shapes alone do not decide: seven channels on a 7×7 grid look alike in every order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tagfill.errors import TagfillError

WITH_A_GRID = "tf_efficientnet_lite0, resnet50, convnext_tiny, swin_tiny_patch4_window7_224 or deit_small_patch16_224"


@dataclass(frozen=True)
class Layout:
    """How the features of one model lie.

    Attributes:
        order: `NCHW`, `NHWC` or `tokens`.
        channels: D.
        grid: rows and columns.
        prefix: tokens before those of the patches.
        class_token: whether the first of them stands for the whole image.
    """

    order: str
    channels: int
    grid: tuple[int, int]
    prefix: int = 0
    class_token: bool = False

    def to_grid(self, features: Tensor) -> Tensor:
        """B×D×H×W of what the model gave; a view, never a copy."""
        if self.order == "NHWC":
            return features.permute(0, 3, 1, 2)
        if self.order == "tokens":
            return features[:, self.prefix :].transpose(1, 2).reshape(features.shape[0], -1, *self.grid)
        return features


def layout_of(name: str, model: Any, features: object) -> Layout:
    """How the features of a model lie, by what the model says of itself.

    Args:
        name: of the model, for the error.
        model: a timm model.
        features: what its `forward_features` gave for one image.
    """
    if not isinstance(features, Tensor):
        raise _without_grid(name, f"gives {type(features).__name__} instead of one tensor")
    shape = tuple(features.shape)
    if len(shape) == 4:
        return _of_maps(name, model, shape)
    if len(shape) == 3:
        return _of_tokens(name, model, shape)
    raise _without_grid(name, f"gives features of shape {shape}")


def _of_maps(name: str, model: Any, shape: tuple[int, ...]) -> Layout:
    order = str(getattr(model, "output_fmt", "NCHW")).rpartition(".")[2]
    if order == "NHWC":
        return Layout(order, shape[3], (shape[1], shape[2]))
    if order == "NCHW" and shape[1] == getattr(model, "num_features", shape[1]):
        return Layout(order, shape[1], (shape[2], shape[3]))
    raise _without_grid(name, f"gives features of shape {shape} and does not say which of them is the channel")


def _of_tokens(name: str, model: Any, shape: tuple[int, ...]) -> Layout:
    grid = _patch_grid(model)
    if grid is None:
        raise _without_grid(name, f"gives features of shape {shape} and does not say how its tokens lie in the image")
    class_token = isinstance(getattr(model, "cls_token", None), nn.Parameter)
    prefix = int(getattr(model, "num_prefix_tokens", int(class_token)))
    if shape[1] != prefix + grid[0] * grid[1]:
        raise _without_grid(
            name,
            f"gives {shape[1]} tokens, which are not {prefix} and then one for each of {grid[0]}×{grid[1]} patches",
        )
    return Layout("tokens", shape[2], grid, prefix, class_token and prefix > 0)


def _patch_grid(model: Any) -> tuple[int, int] | None:
    for embedding in ("patch_embed", "stem"):  # MLP-Mixers call theirs the stem
        grid = getattr(getattr(model, embedding, None), "grid_size", None)
        if grid is not None:
            return int(grid[0]), int(grid[1])
    return None


def _without_grid(name: str, found: str) -> TagfillError:
    return TagfillError(
        f"The backbone {name} {found}, so there is no grid of features; choose one that has it, such as {WITH_A_GRID}."
    )
