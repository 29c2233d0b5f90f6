"""Swin transformer in plain torch functions, window by window, on the weights of its authors' files.

Liu et al.: *Swin Transformer: Hierarchical Vision Transformer using Shifted Windows*, ICCV 2021.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def norm(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def regions(size: int, window: int, shift: int) -> Tensor:
    """Which part of a side each place is in; after a shift, places of different parts meet in the last window."""
    part = torch.zeros(size, dtype=torch.long)
    if shift:
        part[size - window : size - shift] = 1
        part[size - shift :] = 2
    return part


def window_attention(x: Tensor, part: Tensor, w: Weights, name: str, heads: int, side: int) -> Tensor:
    """Of one window: x is B×n×C row by row, part (n) says who may look at whom."""
    images, n, channels = x.shape
    q, k, v = linear(x, w, f"{name}.qkv").view(images, n, 3, heads, channels // heads).permute(2, 0, 3, 1, 4)
    place = torch.stack([torch.arange(n) // side, torch.arange(n) % side], 1)
    apart = place[:, None] - place[None] + side - 1
    bias = w[f"{name}.relative_position_bias_table"][apart[..., 0] * (2 * side - 1) + apart[..., 1]].permute(2, 0, 1)
    scores = q @ k.transpose(-1, -2) * (channels // heads) ** -0.5 + bias
    scores = scores + torch.where(part[:, None] == part[None], 0.0, -100.0)
    return linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(images, n, channels), w, f"{name}.proj")


def block(x: Tensor, w: Weights, name: str, window: int, *, shifted: bool) -> Tensor:
    """B×H×W×C, with windows moved by half a window where `shifted` and there is more than one."""
    size = x.shape[1]
    side = min(window, size)
    shift = side // 2 if shifted and size > window else 0
    heads = w[f"{name}.attn.relative_position_bias_table"].shape[1]
    normed = norm(x, w, f"{name}.norm1").roll((-shift, -shift), (1, 2))
    part = regions(size, side, shift)
    part = 3 * part[:, None] + part[None]
    looked = torch.zeros_like(normed)
    for top in range(0, size, side):
        for left in range(0, size, side):
            rows, columns = slice(top, top + side), slice(left, left + side)
            cells, who = normed[:, rows, columns].flatten(1, 2), part[rows, columns].flatten()
            seen = window_attention(cells, who, w, f"{name}.attn", heads, side)
            looked[:, rows, columns] = seen.view(len(x), side, side, -1)
    x = x + looked.roll((shift, shift), (1, 2))
    inner = F.gelu(linear(norm(x, w, f"{name}.norm2"), w, f"{name}.mlp.fc1"))
    return x + linear(inner, w, f"{name}.mlp.fc2")


def swin(pixels: Tensor, w: Weights, window: int) -> Tensor:
    """B×D×H/32×W/32 of B×3×H×W normalised pixels, of a square whose sides are whole windows."""
    x = F.conv2d(pixels, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=4).permute(0, 2, 3, 1)
    x = norm(x, w, "patch_embed.norm")
    for stage in range(4):
        number = 0
        while f"layers.{stage}.blocks.{number}.norm1.weight" in w:
            x = block(x, w, f"layers.{stage}.blocks.{number}", window, shifted=number % 2 == 1)
            number += 1
        if f"layers.{stage}.downsample.norm.weight" in w:
            quarters = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
            joined = norm(torch.cat(quarters, -1), w, f"layers.{stage}.downsample.norm")
            x = linear(joined, w, f"layers.{stage}.downsample.reduction")
    return norm(x, w, "norm").permute(0, 3, 1, 2)
