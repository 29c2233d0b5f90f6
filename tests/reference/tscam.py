"""TS-CAM in NumPy: a DeiT step by step, then the 3×3 convolution cell by cell, and the class token's attention."""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-6) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight + bias


def gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def patches(image: Array, size: int) -> Array:
    """Flattened patches, row by row, of a 3×H×W image."""
    rows, columns = image.shape[1] // size, image.shape[2] // size
    return np.stack(
        [
            image[:, r * size : (r + 1) * size, c * size : (c + 1) * size].ravel()
            for r in range(rows)
            for c in range(columns)
        ]
    )


def deit(weights: dict[str, Array], image: Array, heads: int, prefix: int = 1) -> tuple[Array, Array]:
    """Normed tokens (prefix + patches)×D of one image, and the class token's attention to patches in each block."""
    kernel = weights["patch_embed.proj.weight"]
    tokens = patches(image, kernel.shape[-1]) @ kernel.reshape(len(kernel), -1).T + weights["patch_embed.proj.bias"]
    x = np.concatenate([weights["cls_token"][0], tokens]) + weights["pos_embed"][0]
    rows = []
    blocks = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    for number in range(blocks):
        part = {k.removeprefix(f"blocks.{number}."): v for k, v in weights.items() if k.startswith(f"blocks.{number}.")}
        y = layer_norm(x, part["norm1.weight"], part["norm1.bias"])
        q, k, v = np.split(y @ part["attn.qkv.weight"].T + part["attn.qkv.bias"], 3, axis=-1)
        width = q.shape[-1] // heads
        row, gathered = np.zeros(len(x) - prefix), np.zeros_like(q)
        for head in range(heads):
            own = slice(head * width, (head + 1) * width)
            attention = softmax(q[:, own] @ k[:, own].T / sqrt(width))
            gathered[:, own] = attention @ v[:, own]
            row += attention[0, prefix:] / heads
        rows.append(row)
        x = x + gathered @ part["attn.proj.weight"].T + part["attn.proj.bias"]
        y = layer_norm(x, part["norm2.weight"], part["norm2.bias"])
        y = gelu(y @ part["mlp.fc1.weight"].T + part["mlp.fc1.bias"])
        x = x + y @ part["mlp.fc2.weight"].T + part["mlp.fc2.bias"]
    return layer_norm(x, weights["norm.weight"], weights["norm.bias"]), np.stack(rows)


def convolve(features: Array, kernel: Array, bias: Array) -> Array:
    """Class maps L×H×W of D×H×W features: a 3×3 window with zeros outside."""
    _, height, width = features.shape
    maps = np.zeros((len(kernel), height, width))
    for c in range(len(kernel)):
        for r in range(height):
            for k in range(width):
                total = bias[c]
                for y in range(3):
                    for x in range(3):
                        row, column = r + y - 1, k + x - 1
                        if 0 <= row < height and 0 <= column < width:
                            total += kernel[c, :, y, x] @ features[:, row, column]
                maps[c, r, k] = total
    return maps


def coupled(maps: Array, rows: Array) -> Array:
    """A · S of one image: rows are blocks×H·W."""
    _, height, width = maps.shape
    result = np.zeros_like(maps)
    for c in range(len(maps)):
        for r in range(height):
            for k in range(width):
                attention = sum(row[r * width + k] for row in rows)
                result[c, r, k] = attention * maps[c, r, k]
    return result
