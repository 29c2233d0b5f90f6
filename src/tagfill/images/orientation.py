"""How a camera was held: the EXIF orientation, as exchanged axes and mirrorings."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from PIL import Image
from PIL.ExifTags import Base
from PIL.Image import Transpose

Side = TypeVar("Side", int, float)


class Orientation(NamedTuple):
    """What turns stored pixels upright: exchange rows and columns first, then mirror."""

    exchange: bool = False
    flip_x: bool = False
    flip_y: bool = False

    def size(self, width: Side, height: Side) -> tuple[Side, Side]:
        """Width and height of the upright image from those of the stored one, and the other way round."""
        return (height, width) if self.exchange else (width, height)

    def turn(self, image: Image.Image) -> Image.Image:
        """The upright image."""
        return image.transpose(_PILLOW[self]) if self in _PILLOW else image


_PILLOW = {
    Orientation(flip_x=True): Transpose.FLIP_LEFT_RIGHT,
    Orientation(flip_x=True, flip_y=True): Transpose.ROTATE_180,
    Orientation(flip_y=True): Transpose.FLIP_TOP_BOTTOM,
    Orientation(exchange=True): Transpose.TRANSPOSE,
    Orientation(exchange=True, flip_x=True): Transpose.ROTATE_270,
    Orientation(exchange=True, flip_x=True, flip_y=True): Transpose.TRANSVERSE,
    Orientation(exchange=True, flip_y=True): Transpose.ROTATE_90,
}
_EXIF = dict(enumerate(_PILLOW, start=2))  # in this order; 1 is upright


def orientation_of(image: Image.Image) -> Orientation:
    """The orientation that a file names; upright where it names none, or its EXIF data are damaged."""
    try:
        value = image.getexif().get(Base.Orientation)
    except Exception:  # whatever Pillow raises on damaged EXIF data, the pixels are still good
        value = None
    return _EXIF.get(value, Orientation()) if isinstance(value, int) else Orientation()
