"""CvT as Query2Label uses it, in plain torch functions, on the weights of its authors' files.

Wu et al.: *CvT: Introducing Convolutions to Vision Transformers*, ICCV 2021.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]
_EMBEDDING = ((4, 2), (2, 1), (2, 1))  # stride and padding of each stage


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def norm(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def projected(cells: Tensor, token: Tensor, w: Weights, name: str, what: str, stride: int) -> Tensor:
    """Queries, keys or values: a depthwise convolution of the cells and its batch norm, then a linear layer."""
    x = F.conv2d(cells, w[f"{name}.conv_proj_{what}.conv.weight"], stride=stride, padding=1, groups=cells.shape[1])
    mean, variance, scale, shift = (
        w[f"{name}.conv_proj_{what}.bn.{part}"][:, None, None]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    x = (x - mean) / (variance + 1e-5).sqrt() * scale + shift
    return linear(torch.cat([token, x.flatten(2).transpose(1, 2)], 1), w, f"{name}.proj_{what}")


def attention(tokens: Tensor, prefix: int, height: int, width: int, w: Weights, name: str, heads: int) -> Tensor:
    images, _, channels = tokens.shape
    token, cells = tokens[:, :prefix], tokens[:, prefix:].transpose(1, 2).reshape(images, channels, height, width)
    parts = [projected(cells, token, w, name, what, 1 if what == "q" else 2) for what in "qkv"]
    gathered = []
    for h in range(heads):
        own = slice(h * channels // heads, (h + 1) * channels // heads)
        q, k, v = (part[..., own] for part in parts)
        gathered.append(
            (q @ k.transpose(1, 2) * channels**-0.5).softmax(-1) @ v
        )  # scaled by all channels, as published
    return linear(torch.cat(gathered, -1), w, f"{name}.proj")


def cvt(pixels: Tensor, w: Weights, heads: tuple[int, ...]) -> Tensor:
    """B×D×H/16×W/16 of B×3×H×W normalised pixels; the last norm is that of each cell."""
    x = pixels
    for stage, (stride, padding) in enumerate(_EMBEDDING):
        embedding = f"stage{stage}.patch_embed"
        x = F.conv2d(x, w[f"{embedding}.proj.weight"], w[f"{embedding}.proj.bias"], stride=stride, padding=padding)
        images, channels, height, width = x.shape
        tokens = norm(x.flatten(2).transpose(1, 2), w, f"{embedding}.norm")
        prefix = 0
        if f"stage{stage}.cls_token" in w:
            prefix = 1
            tokens = torch.cat([w[f"stage{stage}.cls_token"].expand(images, -1, -1), tokens], 1)
        number = 0
        while f"stage{stage}.blocks.{number}.norm1.weight" in w:
            name = f"stage{stage}.blocks.{number}"
            normed = norm(tokens, w, f"{name}.norm1")
            tokens = tokens + attention(normed, prefix, height, width, w, f"{name}.attn", heads[stage])
            inner = linear(norm(tokens, w, f"{name}.norm2"), w, f"{name}.mlp.fc1")
            tokens = tokens + linear(inner * (1.702 * inner).sigmoid(), w, f"{name}.mlp.fc2")
            number += 1
        x = tokens[:, prefix:].transpose(1, 2).reshape(images, channels, height, width)
    return norm(x.permute(0, 2, 3, 1), w, "norm").permute(0, 3, 1, 2)
