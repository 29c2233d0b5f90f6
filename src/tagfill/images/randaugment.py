"""RandAugment of the package pytorch-randaugment, which released multi-label code uses.

Two operations per view, drawn from sixteen with replacement, all at the same strength: magnitude 9 of 30 is 0.3 of the
way from the first to the second value.

    operation                             from     to    at 9
    autocontrast, equalize, invert           –      –       –
    rotate, either way                      0°    30°      9°
    posterize, bits kept                     0      4       1
    solarize, from this value              0.0    256    76.8
    add to every value, then solarize        0    110      33   solarized from 128
    color, contrast, brightness, sharpness 0.1    1.9    0.64   1 leaves the image unchanged
    shear along x, along y, either way       0    0.3    0.09
    gray square, side in pixels              0     40      12   its center anywhere
    translate along x, along y, either way   0    100      30   pixels

torchvision's RandAugment at magnitude 9 has 14 operations, among them the identity. It lacks inversion, the addition
and the square, and differs in strength: it keeps 7 bits, solarizes from 178, changes colors by 0.27 either way, and
moves by a share of the size. Pixels that an operation moves in from outside are black here as there.

Cubuk, Zoph, Shlens and Le: *RandAugment: Practical automated data augmentation with a reduced search space*, 2020.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from tagfill.rng import generator

_OPERATIONS, _STRENGTH = 2, 9 / 30
_GRAY = (125, 123, 114)

Operation = Callable[[Image.Image, float, np.random.Generator], Image.Image]


def pytorch_randaugment(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Apply two random operations of pytorch-randaugment at magnitude 9.

    Args:
        pixels: H×W×3 uint8.
        seed: decides everything, in any process or thread.

    Returns:
        H×W×3 uint8.

    >>> pytorch_randaugment(np.full((32, 48, 3), 200, np.uint8), seed=1).shape
    (32, 48, 3)
    """
    rng = generator(seed, "randaugment")
    image = Image.fromarray(pixels)
    for name in rng.choice(list(OPERATIONS), _OPERATIONS):
        operation, low, high = OPERATIONS[str(name)]
        image = operation(image, low + _STRENGTH * (high - low), rng)
    return np.array(image)


def _either_way(value: float, rng: np.random.Generator) -> float:
    return -value if rng.random() < 0.5 else value


def _affine(
    image: Image.Image, *, shear: tuple[float, float] = (0, 0), shift: tuple[float, float] = (0, 0)
) -> Image.Image:
    """Each pixel (x, y) comes from (x + shear₀ y + shift₀, shear₁ x + y + shift₁)."""
    data = (1, shear[0], shift[0], shear[1], 1, shift[1])
    return image.transform(image.size, Image.Transform.AFFINE, data)


def _solarize_add(image: Image.Image, addition: float, rng: np.random.Generator) -> Image.Image:
    brighter = np.clip(np.asarray(image, np.int16) + int(addition), 0, 255).astype(np.uint8)
    return ImageOps.solarize(Image.fromarray(brighter), 128)


def _gray_square(image: Image.Image, side: float, rng: np.random.Generator) -> Image.Image:
    left = int(max(0, rng.uniform(0, image.width) - side / 2))
    top = int(max(0, rng.uniform(0, image.height) - side / 2))
    covered = image.copy()
    ImageDraw.Draw(covered).rectangle(
        (left, top, min(image.width, left + side), min(image.height, top + side)), fill=_GRAY
    )
    return covered


# by name: the operation, and its strength at magnitudes 0 and 30
OPERATIONS: dict[str, tuple[Operation, float, float]] = {
    "autocontrast": (lambda image, _, rng: ImageOps.autocontrast(image), 0, 0),
    "equalize": (lambda image, _, rng: ImageOps.equalize(image), 0, 0),
    "invert": (lambda image, _, rng: ImageOps.invert(image), 0, 0),
    "rotate": (lambda image, degrees, rng: image.rotate(_either_way(degrees, rng)), 0, 30),
    "posterize": (lambda image, bits, rng: ImageOps.posterize(image, int(bits)), 0, 4),
    "solarize": (lambda image, threshold, rng: ImageOps.solarize(image, threshold), 0, 256),  # type: ignore[arg-type]
    "solarize_add": (_solarize_add, 0, 110),
    "color": (lambda image, factor, rng: ImageEnhance.Color(image).enhance(factor), 0.1, 1.9),
    "contrast": (lambda image, factor, rng: ImageEnhance.Contrast(image).enhance(factor), 0.1, 1.9),
    "brightness": (lambda image, factor, rng: ImageEnhance.Brightness(image).enhance(factor), 0.1, 1.9),
    "sharpness": (lambda image, factor, rng: ImageEnhance.Sharpness(image).enhance(factor), 0.1, 1.9),
    "shear_x": (lambda image, shear, rng: _affine(image, shear=(_either_way(shear, rng), 0)), 0, 0.3),
    "shear_y": (lambda image, shear, rng: _affine(image, shear=(0, _either_way(shear, rng))), 0, 0.3),
    "gray_square": (_gray_square, 0, 40),
    "translate_x": (lambda image, shift, rng: _affine(image, shift=(_either_way(shift, rng), 0)), 0, 100),
    "translate_y": (lambda image, shift, rng: _affine(image, shift=(0, _either_way(shift, rng))), 0, 100),
}
