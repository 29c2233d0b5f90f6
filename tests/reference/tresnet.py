"""TResNet in plain torch functions, on the weights of its authors' files, under their names.

Ridnik et al.: *TResNet: High Performance GPU-Dedicated Architecture*, WACV 2021.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


def convolution(x: Tensor, w: Weights, name: str) -> Tensor:
    """With its in-place norm: |w| + ε, and never w, multiplies what was normalised."""
    weight = w[f"{name}.0.weight"]
    x = F.conv2d(x, weight, padding=weight.shape[-1] // 2)
    mean, variance, scale, shift = (w[f"{name}.1.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    normed = (x - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
    return normed * (scale.abs() + 1e-5)[:, None, None] + shift[:, None, None]


def blurred_stride(x: Tensor) -> Tensor:
    """Every second cell of a mean over 3×3 neighbours with weights 1 2 1 in both directions."""
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    rows, columns = (x.shape[2] + 1) // 2, (x.shape[3] + 1) // 2
    result = torch.zeros(*x.shape[:2], rows, columns, dtype=x.dtype)
    for i, a in enumerate((1, 2, 1)):
        for j, b in enumerate((1, 2, 1)):
            result += a * b / 16 * padded[:, :, i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2]
    return result


def squeezed(x: Tensor, w: Weights, name: str) -> Tensor:
    if f"{name}.fc1.weight" not in w:
        return x
    mean = x.mean((2, 3), keepdim=True)
    inner = F.conv2d(mean, w[f"{name}.fc1.weight"], w[f"{name}.fc1.bias"]).relu()
    return x * F.conv2d(inner, w[f"{name}.fc2.weight"], w[f"{name}.fc2.bias"]).sigmoid()


def block(x: Tensor, w: Weights, name: str, stride: int) -> Tensor:
    """Of two convolutions, the first of them strided, or of three, with the second strided."""
    deep = f"{name}.conv3.0.weight" in w
    strided = "conv2" if deep else "conv1"
    shortcut = x
    if stride == 2:
        shortcut = convolution(F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False), w, f"{name}.downsample.1")
    elif f"{name}.downsample.0.0.weight" in w:
        shortcut = convolution(x, w, f"{name}.downsample.0")
    for part in ("conv1", "conv2") if deep else ("conv1",):
        inner = f"{name}.{part}.0" if stride == 2 and part == strided else f"{name}.{part}"
        x = F.leaky_relu(convolution(x, w, inner), 1e-3)
        if stride == 2 and part == strided:
            x = blurred_stride(x)
    if deep:
        x = convolution(squeezed(x, w, f"{name}.se"), w, f"{name}.conv3")
    else:
        x = squeezed(convolution(x, w, f"{name}.conv2"), w, f"{name}.se")
    return (x + shortcut).relu()


def tresnet(x: Tensor, w: Weights) -> Tensor:
    """B×D×H/32×W/32 of B×3×H×W normalised pixels."""
    images, channels, height, width = x.shape
    tiles = x.view(images, channels, height // 4, 4, width // 4, 4).permute(0, 3, 5, 1, 2, 4)
    x = tiles.reshape(images, 16 * channels, height // 4, width // 4)
    x = F.leaky_relu(convolution(x, w, "body.conv1"), 1e-2)
    for stage in (1, 2, 3, 4):
        number = 0
        while f"body.layer{stage}.{number}.conv2.1.bias" in w or f"body.layer{stage}.{number}.conv2.0.1.bias" in w:
            x = block(x, w, f"body.layer{stage}.{number}", 2 if stage > 1 and number == 0 else 1)
            number += 1
    return x
