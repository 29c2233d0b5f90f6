"""RGB pixels from whatever colours a file stores.

Transparency is laid on white, where photos with their background cut away are meant to be seen. Sixteen bits keep
their upper eight, so that white stays white. CMYK is converted without a colour profile, and profiles are not applied.
"""

from __future__ import annotations

import numpy as np
from PIL import Image


def to_rgb(image: Image.Image) -> Image.Image:
    """The image in mode RGB.

    >>> to_rgb(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode.startswith("I"):
        image = _upper_bits(image)
    elif image.mode == "RGB" and any(value > 255 for value in image.info.get("transparency", ())):
        image.info["transparency"] = tuple(value >> 8 for value in image.info["transparency"])
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), layer).convert("RGB")


def _upper_bits(image: Image.Image) -> Image.Image:
    """A 16-bit grey image in 8 bits, the one grey that stands for transparency as an alpha channel."""
    values = np.asarray(image)
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    transparent = image.info.get("transparency")
    if transparent is not None:
        grey.putalpha(Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8)))
    return grey
