"""State dicts with the names and shapes that the projects publish, and random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import tagfill.torchvision_remedy  # noqa: F401  (before torchvision)

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def resnet(depth: int = 18, seed: int = 0) -> nn.Module:
    """A torchvision ResNet whose statistics are not 0 and 1."""
    import torchvision

    torch.manual_seed(seed)
    model = getattr(torchvision.models, f"resnet{depth}")()
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.2)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    return model.eval()


def grid_of(model: nn.Module, pixels: Tensor, *, mean: Tensor = MEAN, std: Tensor = STD) -> Tensor:
    """Output of a torchvision ResNet before its pooling, for pixels in 0..255."""
    scaled = (pixels / 255 - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
    with torch.no_grad():
        return nn.Sequential(*list(model.children())[:-2])(scaled)


def mlspl(model: nn.Module, classes: int, channels: int = 512, *, inner: str = "") -> dict[str, Tensor]:
    """A state dict of Cole et al.: a sequence of the ResNet's children, a classifier, and ROLE's table."""
    sequence = nn.Sequential(*list(model.children())[:-1])
    state = {f"f.feature_extractor.{name}": value for name, value in sequence.state_dict().items()}
    state[f"f.linear_classifier.{inner}weight"] = torch.randn(classes, channels) / channels
    state[f"f.linear_classifier.{inner}bias"] = torch.randn(classes)
    state["g.logits"] = torch.randn(30, classes)
    return state


def q2l(
    model: nn.Module, classes: int, *, width: int = 16, ffn: int = 24, project: bool = True, among: tuple[bool, ...]
) -> dict[str, Tensor]:
    """A state dict of Query2Label: a ResNet with frozen batch norms, one encoder layer, and the given decoder layers.

    `among` says of each decoder layer whether queries attend to each other in it.
    """
    body = {name: value for name, value in model.state_dict().items() if not name.startswith("fc.")}
    body = {name: value for name, value in body.items() if not name.endswith("num_batches_tracked")}
    state = q2l_without_backbone(classes, 512 if project else None, width=width, ffn=ffn, grid=(2, 2), among=among)
    return state | {f"backbone.0.body.{name}": value for name, value in body.items()}


def q2l_without_backbone(
    classes: int,
    channels: int | None,
    *,
    width: int = 16,
    ffn: int = 24,
    grid: tuple[int, int],
    among: tuple[bool, ...] = (False,),
) -> dict[str, Tensor]:
    """Everything except the backbone, for features of `channels` that are projected, or of `width` that are not."""
    shapes: dict[str, tuple[int, ...]] = {}

    def attention(prefix: str) -> None:
        shapes[f"{prefix}.in_proj_weight"] = (3 * width, width)
        shapes[f"{prefix}.in_proj_bias"] = (3 * width,)
        shapes[f"{prefix}.out_proj.weight"] = (width, width)
        shapes[f"{prefix}.out_proj.bias"] = (width,)

    def rest(prefix: str, norms: tuple[int, ...]) -> None:
        shapes[f"{prefix}.linear1.weight"], shapes[f"{prefix}.linear1.bias"] = (ffn, width), (ffn,)
        shapes[f"{prefix}.linear2.weight"], shapes[f"{prefix}.linear2.bias"] = (width, ffn), (width,)
        for number in norms:
            shapes[f"{prefix}.norm{number}.weight"] = shapes[f"{prefix}.norm{number}.bias"] = (width,)

    attention("transformer.encoder.layers.0.self_attn")
    rest("transformer.encoder.layers.0", (1, 2))
    for layer, asks in enumerate(among):
        if asks:
            attention(f"transformer.decoder.layers.{layer}.self_attn")
        attention(f"transformer.decoder.layers.{layer}.multihead_attn")
        rest(f"transformer.decoder.layers.{layer}", (1, 2, 3) if asks else (2, 3))
    shapes["transformer.decoder.norm.weight"] = shapes["transformer.decoder.norm.bias"] = (width,)
    if channels is not None:
        shapes["input_proj.weight"], shapes["input_proj.bias"] = (width, channels, 1, 1), (width,)
    shapes["query_embed.weight"] = (classes, width)
    shapes["fc.W"], shapes["fc.b"] = (1, classes, width), (1, classes)
    shapes["backbone.1.pe"] = (1, width, *grid)
    return {name: torch.randn(shape) / 3 for name, shape in shapes.items()}


def tscam(classes: int, *, width: int = 192, blocks: int = 12, side: int = 4) -> dict[str, Tensor]:
    """A state dict of TS-CAM on DeiT-tiny at `side`×`side` patches."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 1 + side * side, width),
        "patch_embed.proj.weight": (width, 3, 16, 16),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
        "head.weight": (classes, width, 3, 3),
        "head.bias": (classes,),
    }
    for block in range(blocks):
        for part, (rows, columns) in {
            "attn.qkv": (3 * width, width),
            "attn.proj": (width, width),
            "mlp.fc1": (4 * width, width),
            "mlp.fc2": (width, 4 * width),
        }.items():
            shapes[f"blocks.{block}.{part}.weight"] = (rows, columns)
            shapes[f"blocks.{block}.{part}.bias"] = (rows,)
        for norm in ("norm1", "norm2"):
            shapes[f"blocks.{block}.{norm}.weight"] = shapes[f"blocks.{block}.{norm}.bias"] = (width,)
    torch.manual_seed(0)
    return {name: torch.randn(shape) / 14 for name, shape in shapes.items()}


def as_arrays(state: dict[str, Tensor]) -> dict[str, Any]:
    return {name: value.double().numpy() for name, value in state.items()}
