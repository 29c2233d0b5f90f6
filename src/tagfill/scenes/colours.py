"""Colours that can be told from what is behind them."""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
_CANDIDATES = 12


def any_colour(rng: np.random.Generator) -> Colour:
    """A colour of any hue, from pastel to deep."""
    hue, saturation, value = rng.random(), rng.uniform(0.1, 0.9), rng.uniform(0.2, 1.0)
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


def against(rng: np.random.Generator, behind: Colour, contrast: float) -> Colour:
    """A colour whose lightness differs from `behind` by at least `contrast` of 255, or the best of a dozen."""
    best, distance = behind, -1.0
    for _ in range(_CANDIDATES):
        candidate = any_colour(rng)
        reached = abs(lightness(candidate) - lightness(behind))
        if reached > distance:
            best, distance = candidate, reached
        if distance >= contrast:
            break
    return best


def lightness(colour: Colour) -> float:
    """Perceived lightness, 0 to 255."""
    return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]


def mean_colour(pixels: NDArray[np.uint8]) -> Colour:
    """The mean of H×W×3 pixels, rounded down."""
    red, green, blue = (
        int(total) // (pixels.shape[0] * pixels.shape[1]) for total in pixels.sum(axis=(0, 1), dtype=int)
    )
    return red, green, blue
