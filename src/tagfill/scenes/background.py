"""Colors and backgrounds: a soft gradient or a pattern, clutter that belongs to no class, and grain."""

from __future__ import annotations

import colorsys
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Color = tuple[int, int, int]

_CANDIDATES = 12
_PATTERNS = ("plain", "stripes", "checks", "dots", "blotches")
_MOST_CLUTTER = 4


def paint_background(rng: np.random.Generator, width: int, height: int) -> NDArray[np.uint8]:
    """Paint a background of H×W×3 pixels."""
    first = random_color(rng)
    canvas = _gradient(rng, first, width, height)
    second = _nearby(rng, first)
    pattern = _PATTERNS[rng.integers(len(_PATTERNS))]
    if pattern != "plain":
        mask = _pattern(rng, pattern, width, height)
        canvas.paste(second, (0, 0), mask)
    _scatter(rng, canvas)
    return _grain(rng, np.array(canvas))


def _gradient(rng: np.random.Generator, base: Color, width: int, height: int) -> Image.Image:
    """Four to nine colors near `base`, blended across the picture."""
    cells = rng.integers(2, 4, size=2)
    corners = np.array(base) + rng.integers(-40, 41, size=(*cells, 3))
    small = Image.fromarray(np.clip(corners, 0, 255).astype(np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def _nearby(rng: np.random.Generator, base: Color) -> Color:
    red, green, blue = np.clip(np.array(base) + rng.integers(-50, 51, size=3), 0, 255).tolist()
    return red, green, blue


def _pattern(rng: np.random.Generator, kind: str, width: int, height: int) -> Image.Image:
    """An H×W mask with a regular or random texture of random strength."""
    strength = int(rng.integers(40, 140))
    if kind == "blotches":
        cells = int(rng.integers(5, 14))
        small = rng.integers(0, strength + 1, size=(cells, cells), dtype=np.uint8)
        return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    period = max(4, int(max(width, height) * rng.uniform(0.05, 0.16)))
    rows, columns = np.mgrid[:height, :width]
    if kind == "stripes":
        slant = rng.integers(-2, 3, size=2)
        on = (slant[0] * rows + (slant[1] or 1) * columns) % (2 * period) < period
    elif kind == "checks":
        on = (rows // period + columns // period) % 2 == 0
    else:
        on = (rows % period - period // 2) ** 2 + (columns % period - period // 2) ** 2 < (period // 3) ** 2
    return Image.fromarray(np.where(on, np.uint8(strength), np.uint8(0)))


def _scatter(rng: np.random.Generator, canvas: Image.Image) -> None:
    """Draw shapes that are no pictograms, so that an edge or a color alone is no evidence."""
    side = min(canvas.size)
    pen = ImageDraw.Draw(canvas)
    for _ in range(rng.integers(0, _MOST_CLUTTER + 1)):
        x, y = rng.uniform(0, canvas.width), rng.uniform(0, canvas.height)
        radius = side * rng.uniform(0.04, 0.22)
        color = contrasting_color(rng, canvas.getpixel((int(x), int(y))), 20)  # type: ignore[arg-type]  # the canvas is RGB
        turn, stroke = rng.uniform(0, math.tau), max(1, round(side * rng.uniform(0.008, 0.03)))
        match rng.integers(5):
            case 0:
                pen.ellipse((x - radius, y - radius * 0.7, x + radius, y + radius * 0.7), fill=color)
            case 1:
                pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=color, width=stroke)
            case 2:
                pen.regular_polygon((x, y, radius), int(rng.integers(3, 7)), math.degrees(turn), fill=color)
            case 3:
                reach = (2 * radius * math.cos(turn), 2 * radius * math.sin(turn))
                pen.line((x - reach[0], y - reach[1], x + reach[0], y + reach[1]), fill=color, width=stroke)
            case _:
                pen.rectangle((x - radius, y - radius * 0.4, x + radius, y + radius * 0.4), fill=color)


def _grain(rng: np.random.Generator, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Add the same small noise to all three channels."""
    amount = int(rng.integers(0, 11))
    noise = rng.integers(-amount, amount + 1, size=(*pixels.shape[:2], 1), dtype=np.int16)
    grained: NDArray[np.int16] = pixels + noise
    return np.clip(grained, 0, 255).astype(np.uint8)


def random_color(rng: np.random.Generator) -> Color:
    """A random color of any hue, from pastel to deep."""
    hue, saturation, value = rng.random(), rng.uniform(0.1, 0.9), rng.uniform(0.2, 1.0)
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


def contrasting_color(rng: np.random.Generator, behind: Color, contrast: float) -> Color:
    """A random color whose lightness differs from `behind` by at least `contrast` of 255, or the best of a dozen."""
    best, distance = behind, -1.0
    for _ in range(_CANDIDATES):
        candidate = random_color(rng)
        reached = abs(lightness(candidate) - lightness(behind))
        if reached > distance:
            best, distance = candidate, reached
        if distance >= contrast:
            break
    return best


def lightness(color: Color) -> float:
    """Perceived lightness, 0 to 255."""
    return 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]


def mean_color(pixels: NDArray[np.uint8]) -> Color:
    """The mean of H×W×3 pixels, rounded down."""
    red, green, blue = (
        int(total) // (pixels.shape[0] * pixels.shape[1]) for total in pixels.sum(axis=(0, 1), dtype=int)
    )
    return red, green, blue
