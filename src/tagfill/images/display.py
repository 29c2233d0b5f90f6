"""Images for people to look at: thumbnails, and class maps drawn over their image."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.errors import TagfillError, one_of
from tagfill.images.decode import decode_content, read_content
from tagfill.images.roots import Root
from tagfill.images.stoppable import with_limits
from tagfill.probabilities import sigmoid

SCALINGS = ("minmax", "sigmoid", "unit")
_OPACITY = (0.25, 0.8)  # of the color where the map is lowest and where it is highest


def thumbnail(root: Root | Path, name: str, side: int) -> Image.Image:
    """The whole image, upright, shrunk to fit into a square.

    Args:
        root: the image root, or its folder.
        name: path below the root, the image's identity.
        side: of the square in pixels; a smaller image is not enlarged.

    Raises:
        ImageError: if the image cannot be read or decoded.

    Example:
        `thumbnail(open_root("photos"), "0001.jpg", 320)` of a photo of 4032×3024 pixels has 320×240.
    """
    return with_limits(_thumbnail, name, read_content(root, name), side)


def _thumbnail(name: str, content: bytes, side: int) -> Image.Image:
    image = decode_content(name, content, (side, side))
    image.thumbnail((side, side))
    return image


def encode_jpeg(image: Image.Image) -> bytes:
    """The image as a small JPEG file."""
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=85)
    return file.getvalue()


def overlay_class_map(image: Image.Image, values: NDArray[np.floating], *, scaling: str = "minmax") -> Image.Image:
    """Draw a class map over its image.

    The map is upsampled bilinearly to the image, as the localization metric does, then scaled and colored with
    viridis, which is perceptually uniform. Higher values are more opaque.

    Args:
        image: the view that the map belongs to.
        values: H×W, one class.
        scaling: `minmax` stretches the map from its lowest to its highest value; `sigmoid` shows the probabilities of
            logits; `unit` shows values that are between 0 and 1 already.

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
    large = np.asarray(Image.fromarray(values.astype(np.float32)).resize(image.size, Image.Resampling.BILINEAR))
    scaled = _scale(large.astype(np.float64), scaling)
    colors = matplotlib.colormaps["viridis"](scaled)[..., :3] * 255
    opacity = (_OPACITY[0] + (_OPACITY[1] - _OPACITY[0]) * scaled)[..., None]
    mixed = opacity * colors + (1 - opacity) * np.asarray(image.convert("RGB"), dtype=np.float64)
    return Image.fromarray(np.round(mixed).astype(np.uint8))


def _scale(values: NDArray[np.float64], scaling: str) -> NDArray[np.float64]:
    if scaling == "sigmoid":
        return sigmoid(values)
    if scaling == "unit":
        return np.clip(values, 0, 1)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)
