"""An image for people to look at: upright, whole, no larger than asked for, and as a small file."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from tagfill.images.decode import decode
from tagfill.images.roots import Root


def fitted(root: Root | Path, name: str, side: int) -> Image.Image:
    """An image that fits into a square.

    Args:
        root: the image root, or the folder that it is.
        name: path below the root, the image's identity.
        side: of the square in pixels; a smaller image stays as it is.

    Raises:
        ImageError: if the image cannot be read or decoded.

    Example:
        `fitted(open_root("photos"), "0001.jpg", 320)` of a photo of 4032×3024 pixels has 320×240.
    """
    picture = decode(root, name, shrink_to=(side, side))
    picture.thumbnail((side, side))
    return picture


def as_jpeg(picture: Image.Image) -> bytes:
    """A picture as a small JPEG file."""
    file = io.BytesIO()
    picture.convert("RGB").save(file, "JPEG", quality=85)
    return file.getvalue()
