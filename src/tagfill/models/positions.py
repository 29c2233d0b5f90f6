"""Positions of the cells of a grid as sines and cosines.

    y = 2π r / (H + 1e-6),   x = 2π c / (W + 1e-6)        rows r = 1…H, columns c = 1…W
    channel i of a half:  angle = y or x  ·  10000^(−2⌊i/2⌋ / (d/2)),   its sine where i is even, its cosine where odd
    d/2 channels for y, then d/2 for x

The released code of Query2Label makes this table once, for one image size; here it is made for the grid at hand.

Carion et al.: *End-to-End Object Detection with Transformers*, ECCV 2020, after Vaswani et al., NeurIPS 2017.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor


@functools.lru_cache(maxsize=32)
def sine_positions(height: int, width: int, channels: int, device: torch.device | str = "cpu") -> Tensor:
    """The table of a grid, kept for the next call.

    Args:
        height: H, rows.
        width: W, columns.
        channels: d, a multiple of 4.
        device: to put it on.

    Returns:
        H·W×d float32, row by row; not to be changed.

    >>> sine_positions(2, 3, 8).shape
    torch.Size([6, 8])
    """
    with torch.inference_mode(False):  # or training could not use what an evaluation made
        rows, columns = _half(height, channels // 2), _half(width, channels // 2)
        table = torch.cat(
            [rows[:, None].expand(height, width, -1), columns[None].expand(height, width, -1)], dim=-1
        ).reshape(height * width, channels)
        return table.to(device=device, dtype=torch.float32)


def _half(size: int, channels: int) -> Tensor:
    """Size×channels float64: the positions along one side."""
    place = torch.arange(1, size + 1, dtype=torch.float64) * (2 * math.pi / (size + 1e-6))
    pair = torch.arange(channels // 2, dtype=torch.float64)  # ⌊i/2⌋: a sine and a cosine of each frequency
    angle = place[:, None] * 10000.0 ** (-2 * pair / channels)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
