"""Backbones with the names and shapes that their authors publish, and random weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Shapes = dict[str, tuple[int, ...]]


def filled(shapes: Shapes, seed: int = 0) -> dict[str, Tensor]:
    """Random weights that keep a signal's size; scales of norms of both signs, and variances that are not 1."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=generator)
        if name.endswith(("running_var", ".norm.weight", "norm1.weight", "norm2.weight")) or name == "norm.weight":
            value = 0.5 + torch.rand(shape, generator=generator)
        elif len(shape) > 1 and not name.endswith(("bias_table", "cls_token")):
            value = value / math.sqrt(math.prod(shape[1:]))
        elif not name.endswith(("1.weight", "bn.weight")):
            value = value / 5
        state[name] = value
    return state


def tresnet(planes: int, depths: tuple[int, ...], *, deep: bool = False) -> Shapes:
    """A TResNet; `deep` is version 2, whose first stages have blocks of three convolutions too."""
    shapes: Shapes = {}

    def pair(name: str, out: int, channels: int, kernel: int) -> None:
        shapes[f"{name}.0.weight"] = (out, channels, kernel, kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.1.{part}"] = (out,)

    def excite(name: str, channels: int, inner: int) -> None:
        shapes[f"{name}.fc1.weight"], shapes[f"{name}.fc1.bias"] = (inner, channels, 1, 1), (inner,)
        shapes[f"{name}.fc2.weight"], shapes[f"{name}.fc2.bias"] = (channels, inner, 1, 1), (channels,)

    pair("body.conv1", planes, 48, 3)
    channels = planes
    for stage, depth in enumerate(depths, start=1):
        width, three = planes * 2 ** (stage - 1), deep or stage > 2
        out = width * (4 if three else 1)
        for number in range(depth):
            name, strided = f"body.layer{stage}.{number}", stage > 1 and number == 0
            blurred = ".0" if strided else ""
            if three:
                pair(f"{name}.conv1", width, channels, 1)
                pair(f"{name}.conv2{blurred}", width, width, 3)
                pair(f"{name}.conv3", out, width, 1)
                if stage < 4:
                    excite(f"{name}.se", width, max(out // 8, 64))
            else:
                pair(f"{name}.conv1{blurred}", width, channels, 3)
                pair(f"{name}.conv2", width, width, 3)
                excite(f"{name}.se", width, max(width // 4, 64))
            if strided or channels != out:
                pair(f"{name}.downsample.{int(strided)}", out, channels, 1)
            channels = out
    return shapes


def swin(width: int, depths: tuple[int, ...], heads: tuple[int, ...], window: int) -> Shapes:
    """A Swin transformer without the buffers of its windows, which are in `swin_buffers`."""
    shapes: Shapes = {"patch_embed.proj.weight": (width, 3, 4, 4), "patch_embed.proj.bias": (width,)}
    shapes["patch_embed.norm.weight"] = shapes["patch_embed.norm.bias"] = (width,)
    for stage, depth in enumerate(depths):
        c = width * 2**stage
        for number in range(depth):
            name = f"layers.{stage}.blocks.{number}"
            shapes[f"{name}.attn.relative_position_bias_table"] = ((2 * window - 1) ** 2, heads[stage])
            for part, out, inner in (
                ("attn.qkv", 3 * c, c),
                ("attn.proj", c, c),
                ("mlp.fc1", 4 * c, c),
                ("mlp.fc2", c, 4 * c),
            ):
                shapes[f"{name}.{part}.weight"], shapes[f"{name}.{part}.bias"] = (out, inner), (out,)
            for part in ("norm1", "norm2"):
                shapes[f"{name}.{part}.weight"] = shapes[f"{name}.{part}.bias"] = (c,)
        if stage < len(depths) - 1:
            name = f"layers.{stage}.downsample"
            shapes[f"{name}.reduction.weight"] = (2 * c, 4 * c)
            shapes[f"{name}.norm.weight"] = shapes[f"{name}.norm.bias"] = (4 * c,)
    shapes["norm.weight"] = shapes["norm.bias"] = (width * 2 ** (len(depths) - 1),)
    return shapes


def swin_buffers(depths: tuple[int, ...], window: int) -> dict[str, Tensor]:
    """Buffers in files of Swin: indices in every block, a mask in every second one."""
    buffers = {}
    for stage, depth in enumerate(depths):
        for number in range(depth):
            name = f"layers.{stage}.blocks.{number}"
            buffers[f"{name}.attn.relative_position_index"] = torch.zeros(window**2, window**2, dtype=torch.long)
            if number % 2:
                buffers[f"{name}.attn_mask"] = torch.zeros(1, window**2, window**2)
    return buffers


def cvt(widths: tuple[int, ...], depths: tuple[int, ...]) -> Shapes:
    shapes: Shapes = {}
    channels = 3
    for stage, (c, depth) in enumerate(zip(widths, depths, strict=True)):
        kernel = 7 if stage == 0 else 3
        shapes[f"stage{stage}.patch_embed.proj.weight"] = (c, channels, kernel, kernel)
        shapes[f"stage{stage}.patch_embed.proj.bias"] = (c,)
        shapes[f"stage{stage}.patch_embed.norm.weight"] = shapes[f"stage{stage}.patch_embed.norm.bias"] = (c,)
        if stage == 2:
            shapes["stage2.cls_token"] = (1, 1, c)
        for number in range(depth):
            name = f"stage{stage}.blocks.{number}"
            for what in "qkv":
                shapes[f"{name}.attn.conv_proj_{what}.conv.weight"] = (c, 1, 3, 3)
                for part in ("weight", "bias", "running_mean", "running_var"):
                    shapes[f"{name}.attn.conv_proj_{what}.bn.{part}"] = (c,)
                shapes[f"{name}.attn.conv_proj_{what}.bn.num_batches_tracked"] = ()
                shapes[f"{name}.attn.proj_{what}.weight"], shapes[f"{name}.attn.proj_{what}.bias"] = (c, c), (c,)
            for part, out, inner in (("attn.proj", c, c), ("mlp.fc1", 4 * c, c), ("mlp.fc2", c, 4 * c)):
                shapes[f"{name}.{part}.weight"], shapes[f"{name}.{part}.bias"] = (out, inner), (out,)
            for part in ("norm1", "norm2"):
                shapes[f"{name}.{part}.weight"] = shapes[f"{name}.{part}.bias"] = (c,)
        channels = c
    shapes["norm.weight"] = shapes["norm.bias"] = (widths[-1],)
    return shapes
