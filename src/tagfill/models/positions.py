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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def sine_positions(height: int, width: int, channels: int, device: torch.device | str = "cpu") -> Tensor:
    """The table of a grid.

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
    return torch.from_numpy(_table(height, width, channels)).to(device)


@functools.lru_cache(maxsize=32)
def _table(height: int, width: int, channels: int) -> NDArray[np.float32]:
    """Kept as an array: a tensor that is made while a model is traced or evaluated would be of no use to training."""
    rows, columns = _half(height, channels // 2), _half(width, channels // 2)
    shape = (height, width, channels // 2)
    both = [np.broadcast_to(rows[:, None], shape), np.broadcast_to(columns[None], shape)]
    return np.concatenate(both, axis=-1).reshape(height * width, channels).astype(np.float32)


def _half(size: int, channels: int) -> NDArray[Any]:
    """Size×channels float64: the positions along one side."""
    place = np.arange(1, size + 1) * (2 * math.pi / (size + 1e-6))
    pair = np.arange(channels // 2)  # ⌊i/2⌋: a sine and a cosine of each frequency
    angle = place[:, None] * 10000.0 ** (-2 * pair / channels)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(size, channels)
