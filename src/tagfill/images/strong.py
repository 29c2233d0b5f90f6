"""Strong views: a hole is cut, then RandAugment distorts shapes and colours.

RandAugment (Cubuk et al., 2020) with two operations of magnitude 9 is torchvision's. Cutout (DeVries and Taylor, 2017)
is one rectangle of half the height and half the width, of a random colour, centred anywhere in the view, so that up to
three quarters of it can lie outside. The hole comes first and is distorted with the rest, as in the published
multi-label training code.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.draws import generator

OPERATIONS = 2
MAGNITUDE = 9
HOLE = 0.5

_one_at_a_time = threading.Lock()  # torchvision draws from the one generator of the process


def _renew_lock() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)  # a thread that the child does not have may have held it


def strengthen(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """A strong version of a view.

    Args:
        pixels: H×W×3 uint8.
        seed: decides everything, whatever process or thread asks.

    Returns:
        H×W×3 uint8.
    """
    return randaugment(cutout(pixels, generator(seed, "cutout")), seed)


def cutout(pixels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Cover one rectangle with a random colour; the part of it that lies outside is lost."""
    height, width, _ = pixels.shape
    h, w = round(HOLE * height), round(HOLE * width)
    top, left = int(rng.integers(height)) - h // 2, int(rng.integers(width)) - w // 2
    covered = pixels.copy()
    covered[max(top, 0) : max(top + h, 0), max(left, 0) : max(left + w, 0)] = rng.integers(0, 256, 3, dtype=np.uint8)
    return covered


def randaugment(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Two random operations of torchvision's RandAugment; torch's own generator is left as it was found."""
    import torch

    transform = _transform()
    with _one_at_a_time, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators too
        distorted = transform(Image.fromarray(pixels))
    return np.array(distorted)


@cache
def _transform() -> Any:
    from tagfill.torchvision_remedy import import_torchvision

    import_torchvision()
    from torchvision.transforms import v2

    return v2.RandAugment(num_ops=OPERATIONS, magnitude=MAGNITUDE)
