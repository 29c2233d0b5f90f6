"""The features of a timm model: how they are laid out, what its class token attends to, what they depend on.

timm models return features in one of three layouts, and each model declares its own:

    NCHW    B×D×H×W, most convolutional networks, and custom backbones
    NHWC    B×H×W×D, Swin and other models that set `output_fmt`
    tokens  B×(P + H·W)×D: P = `num_prefix_tokens` class, distillation and register tokens, then the patches, row by
            row, of the `grid_size` H×W of the patch embedding

The shape alone does not decide: seven channels on a 7×7 grid look the same in every layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tagfill.errors import TagfillError

_EXAMPLES = "tf_efficientnet_lite0, resnet50, convnext_tiny, swin_tiny_patch4_window7_224 or deit_small_patch16_224"


@dataclass(frozen=True)
class FeatureLayout:
    """How the features of one model are laid out.

    Attributes:
        order: `NCHW`, `NHWC` or `tokens`.
        channels: D.
        grid: rows and columns.
        prefix: number of tokens before the patch tokens.
        class_token: whether the first prefix token is a class token.
    """

    order: str
    channels: int
    grid: tuple[int, int]
    prefix: int = 0
    class_token: bool = False

    def to_grid(self, features: Tensor) -> Tensor:
        """Rearrange the model's output to B×D×H×W; a view, never a copy."""
        if self.order == "NHWC":
            return features.permute(0, 3, 1, 2)
        if self.order == "tokens":
            return features[:, self.prefix :].transpose(1, 2).reshape(features.shape[0], -1, *self.grid)
        return features


def detect_layout(name: str, model: Any, features: object) -> FeatureLayout:
    """Detect the layout of a model's features from the attributes that the model declares.

    Args:
        name: name of the model, for errors.
        model: a timm model.
        features: output of its `forward_features` for one image.

    Raises:
        TagfillError: if the features do not form a grid.
    """
    if not isinstance(features, Tensor):
        raise _no_grid(name, f"returns {type(features).__name__} instead of one tensor")
    shape = tuple(features.shape)
    if len(shape) == 4:
        return _map_layout(name, model, shape)
    if len(shape) == 3:
        return _token_layout(name, model, shape)
    raise _no_grid(name, f"returns features of shape {shape}")


def _map_layout(name: str, model: Any, shape: tuple[int, ...]) -> FeatureLayout:
    order = str(getattr(model, "output_fmt", "NCHW")).rpartition(".")[2]
    if order == "NHWC":
        return FeatureLayout(order, shape[3], (shape[1], shape[2]))
    if order == "NCHW" and shape[1] == getattr(model, "num_features", shape[1]):
        return FeatureLayout(order, shape[1], (shape[2], shape[3]))
    raise _no_grid(name, f"returns features of shape {shape} and does not say which dimension is the channels")


def _token_layout(name: str, model: Any, shape: tuple[int, ...]) -> FeatureLayout:
    grid = _patch_grid(model)
    if grid is None:
        raise _no_grid(name, f"returns features of shape {shape} and does not say where its tokens are in the image")
    class_token = getattr(model, "image_vector", False) or isinstance(getattr(model, "cls_token", None), nn.Parameter)
    prefix = int(getattr(model, "num_prefix_tokens", int(class_token)))
    if shape[1] != prefix + grid[0] * grid[1]:
        raise _no_grid(
            name, f"returns {shape[1]} tokens instead of {prefix} and one for each of {grid[0]}×{grid[1]} patches"
        )
    return FeatureLayout("tokens", shape[2], grid, prefix, class_token and prefix > 0)


def _patch_grid(model: Any) -> tuple[int, int] | None:
    embeddings = (model, getattr(model, "patch_embed", None), getattr(model, "stem", None))  # a stem in MLP-Mixers
    for embedding in embeddings:
        grid = getattr(embedding, "grid_size", None)
        if grid is not None:
            return int(grid[0]), int(grid[1])
    return None


def check_patches(name: str, model: Any, size: tuple[int, int]) -> None:
    """Raise if patches do not cover an image: timm drops the pixels at its end, and class maps would be shifted.

    Args:
        name: name of the model, for errors.
        model: a timm model.
        size: height and width of its input.

    Raises:
        TagfillError: if a side is not a multiple of the side of a patch.
    """
    from timm.layers.patch_embed import PatchEmbed

    embedding: Any = getattr(getattr(model, "tower", model), "patch_embed", None)
    if not isinstance(embedding, PatchEmbed) or embedding.grid_size is None or embedding.dynamic_img_pad:
        return
    patch = embedding.patch_size
    if all(cells * side == pixels for cells, side, pixels in zip(embedding.grid_size, patch, size, strict=True)):
        return
    near = sorted({max(1, size[0] // patch[0]) * patch[0], (size[0] // patch[0] + 1) * patch[0]})
    raise TagfillError(
        f"The backbone {name} divides images into patches of {patch[0]}×{patch[1]} pixels, which do not cover "
        f"{size[0]}×{size[1]}; choose a multiple of {patch[0]} as image size, such as {' or '.join(map(str, near))}."
    )


def _no_grid(name: str, problem: str) -> TagfillError:
    return TagfillError(
        f"The backbone {name} {problem}, so it has no grid of features; choose one that has, such as {_EXAMPLES}."
    )


@contextmanager
def class_token_attention(name: str, model: Any, prefix: int) -> Iterator[list[Tensor]]:
    """Collect the class token's attention to the patches in every block that runs inside the context.

    In each block, every attention head weights all tokens for the class token by softmax(q kᵀ / √d). What is collected
    is this row over the patches, averaged over heads: B×H·W per block, without a gradient. timm's fused attention never
    materializes the weights, so it is switched off inside the context.

    The model itself is changed meanwhile; do not run it concurrently.

    Args:
        name: name of the model, for errors.
        model: a timm transformer with a class token.
        prefix: number of tokens before the patch tokens; the first is the class token.
    """
    layers = [layer for block in getattr(model, "blocks", ()) for layer in _attention_layers(block)]
    if not layers:
        raise TagfillError(
            f"The attention of {name} cannot be read; choose a ViT or DeiT, such as deit_small_patch16_224."
        )
    rows: list[Tensor] = []

    def collect(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        rows.append(arguments[0].detach()[:, :, 0, prefix:].mean(1))

    fused = [layer.fused_attn for layer in layers]
    hooks = [layer.attn_drop.register_forward_pre_hook(collect) for layer in layers]
    try:
        for layer in layers:
            layer.fused_attn = False
        yield rows
    finally:
        for layer, before, hook in zip(layers, fused, hooks, strict=True):
            layer.fused_attn = before
            hook.remove()


def _attention_layers(block: nn.Module) -> list[Any]:
    """Modules of a block that compute attention weights and pass them through `attn_drop`."""
    return [module for module in block.modules() if hasattr(module, "attn_drop") and hasattr(module, "fused_attn")]


def unused_parameters(model: nn.Module, features: Tensor) -> list[str]:
    """Names of the parameters that the features do not depend on.

    Some timm models have layers after the pooling (ConvNeXt's last norm, MobileNetV3's last convolution), which the
    grid of features does not pass. They must not train: they would get no gradient, weight decay would shrink them, and
    distributed training would wait for their gradients.

    Args:
        model: the model.
        features: its output, computed with a gradient.

    >>> import torch
    >>> model = nn.ModuleDict({"first": nn.Linear(2, 2), "last": nn.Linear(2, 2)})
    >>> unused_parameters(model, model["first"](torch.zeros(1, 2)))
    ['last.weight', 'last.bias']
    """
    used: set[int] = set()
    visited: set[Any] = set()
    pending: list[Any] = [features.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if hasattr(node, "variable"):  # the node that accumulates the gradient of a parameter
            used.add(id(node.variable))
        pending.extend(following for following, _ in node.next_functions)
    return [name for name, parameter in model.named_parameters() if id(parameter) not in used]
