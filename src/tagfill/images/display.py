"""An image for people to look at: upright, whole, no larger than asked for, and as a small file.

A class map laid over the image that it is of.

A map is upsampled bilinearly to its image and coloured by a perceptually even colour map (viridis); the more it says,
the less of the image shines through.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.errors import TagfillError, one_of
from tagfill.images.decode import decode
from tagfill.images.roots import Root
from tagfill.probabilities import sigmoid


def thumbnail(root: Root | Path, name: str, side: int) -> Image.Image:
    """An image that fits into a square.

    Args:
        root: the image root, or the folder that it is.
        name: path below the root, the image's identity.
        side: of the square in pixels; a smaller image stays as it is.

    Raises:
        ImageError: if the image cannot be read or decoded.

    Example:
        `thumbnail(open_root("photos"), "0001.jpg", 320)` of a photo of 4032×3024 pixels has 320×240.
    """
    picture = decode(root, name, shrink_to=(side, side))
    picture.thumbnail((side, side))
    return picture


def encode_jpeg(picture: Image.Image) -> bytes:
    """A picture as a small JPEG file."""
    file = io.BytesIO()
    picture.convert("RGB").save(file, "JPEG", quality=85)
    return file.getvalue()


SCALINGS = ("minmax", "sigmoid", "unit")
_OPACITY = (0.25, 0.8)  # of the colour where the map says nothing, and where it says most


def overlay_class_map(image: Image.Image, values: NDArray[np.floating], *, scaling: str = "minmax") -> Image.Image:
    """A class map over its image.

    Args:
        image: the view that the map is of.
        values: H×W, one class.
        scaling: `minmax` stretches the map from its lowest to its highest value; `sigmoid` shows the probabilities of
            logits, `unit` values that are in 0…1 already.

    Returns:
        RGB, as large as the image.

    Example:
        >>> overlay_class_map(Image.new("RGB", (64, 48)), np.eye(7)).size
        (64, 48)
    """
    import matplotlib

    one_of("scaling", scaling, SCALINGS)
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2:
        raise TagfillError(f"A class map has height and width, but this one has the shape {values.shape}.")
    # As the metric has it: upsampled first, scaled afterwards.
    large = np.asarray(Image.fromarray(values.astype(np.float32)).resize(image.size, Image.Resampling.BILINEAR))
    shown = _scaled(large.astype(np.float64), scaling)
    colours = matplotlib.colormaps["viridis"](shown)[..., :3] * 255
    opacity = (_OPACITY[0] + (_OPACITY[1] - _OPACITY[0]) * shown)[..., None]
    mixed = opacity * colours + (1 - opacity) * np.asarray(image.convert("RGB"), dtype=np.float64)
    return Image.fromarray(np.round(mixed).astype(np.uint8))


def _scaled(values: NDArray[np.float64], scaling: str) -> NDArray[np.float64]:
    if scaling == "sigmoid":
        return sigmoid(values)
    if scaling == "unit":
        return np.clip(values, 0, 1)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)
