"""Safe decoding of image files into upright RGB pixels.

Pillow's `Image.open` is not used: its check against decompression bombs is a warning, controlled by a global setting
and by filters that threads share. The format is recognized here instead, and a size above the limit is refused from the
header, before memory for pixels is allocated. Files with more scans or segments than any ordinary image are refused
before they are decoded (`tagfill.images.structure`), and images that take long are decoded in a process with a time
limit (`tagfill.images.stoppable`).

Transparency is composited on white, the usual background of cut-out product photos. 16-bit values keep their upper
eight bits, so that white stays white. CMYK is converted without a color profile, and profiles are not applied.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image
from PIL.ExifTags import Base
from PIL.Image import Transpose
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from tagfill.errors import ImageError, ImageLimitError
from tagfill.images.roots import FolderRoot, Root
from tagfill.images.stoppable import with_limits
from tagfill.images.structure import webp_size

MAX_PIXELS = 64_000_000
_STRIP = 512  # rows that are composited on white at once
_OVERSAMPLING = 2  # a reduced image keeps this many times the required pixels along each side

Side = TypeVar("Side", int, float)


def decode(root: Root | Path, name: str, *, shrink_to: tuple[float, float] | None = None) -> Image.Image:
    """Decode the first frame of an image as RGB, upright according to its EXIF orientation.

    Args:
        root: the image root, or its folder.
        name: path below the root, the image's identity.
        shrink_to: width and height that the whole image needs; large JPEGs are then decoded at a fraction of their
            size. For a view of a part of the image this is more than the size of the view.

    Raises:
        ImageError: if the file is missing, damaged, larger than 64 megapixels, takes too long to decode, or is not a
            JPEG, PNG or WebP.

    Example:
        `decode(open_root("photos"), "0001.jpg", shrink_to=(448, 448))` of a JPEG of 4032×3024 has 2016×1512 pixels.
    """
    return with_limits(decode_content, name, read_content(root, name), shrink_to)


def decode_content(name: str, content: bytes, shrink_to: tuple[float, float] | None = None) -> Image.Image:
    """Decode the content of a file, without a time limit; otherwise like `decode`."""
    return EncodedImage(name, content).decode(shrink_to)


def check_decodable(root: Root | Path, name: str) -> None:
    """Decode an image completely, and drop the pixels.

    Raises:
        ImageError: as `decode` does.
    """
    with_limits(_decode_and_drop, name, read_content(root, name))


def _decode_and_drop(name: str, content: bytes) -> None:
    decode_content(name, content)


def read_content(root: Root | Path, name: str) -> bytes:
    """The bytes of an image file.

    Args:
        root: the image root, or its folder.
        name: path below the root, the image's identity.

    Raises:
        ImageError: if the file is missing or too large.
    """
    return (FolderRoot(root) if isinstance(root, Path) else root).read(name)


class EncodedImage:
    """An image whose header is read; its pixels are decoded once their required number is known.

    Attributes:
        name: the image's identity.
        width: of the upright image.
        height: of the upright image.
    """

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._image = open_header(name, content)
        with _decoder_errors(name):
            if isinstance(self._image, PngImageFile):
                self._image.load()  # the orientation may follow the pixels, and damage must not hide it
            self._orientation = read_orientation(self._image)
            self.width, self.height = self._orientation.size(*self._image.size)

    def decode(self, shrink_to: tuple[float, float] | None = None) -> Image.Image:
        """Decode the first frame as upright RGB; call this once.

        Args:
            shrink_to: width and height that the whole image needs. A JPEG is then decoded at a half, a quarter or an
                eighth of its size, if that leaves twice the required pixels along each side and divides both sides
                without a remainder, so that relative coordinates stay exact.

        Raises:
            ImageError: if the file is damaged.
        """
        with _decoder_errors(self.name):
            image = self._image
            if shrink_to is not None and isinstance(image, JpegImageFile):
                width, height = image.size
                step = _reduction(image.size, self._orientation.size(*shrink_to))
                image.draft(None, (width // step, height // step))
            image.load()
            return self._orientation.turn_upright(to_rgb(image))


def _reduction(size: tuple[int, int], required: tuple[float, float]) -> int:
    """The largest of 8, 4, 2 and 1 that a JPEG of `size` can be reduced by.

    >>> _reduction((4032, 3024), (224, 224)), _reduction((4032, 3024), (448, 448)), _reduction((4032, 3023), (9, 9))
    (4, 2, 1)
    """
    for step in (8, 4, 2):
        pairs = zip(size, required, strict=True)
        if all(side % step == 0 and side >= step * _OVERSAMPLING * least for side, least in pairs):
            return step
    return 1


def open_header(name: str, content: bytes) -> ImageFile:
    """Parse the header of an image file and check its size; pixels are not decoded.

    Raises:
        ImageError: if it is empty, not a JPEG, PNG or WebP, damaged, or larger than 64 megapixels.
    """
    if not content:
        raise ImageError(name, "the file is empty")
    with _decoder_errors(name):
        image: ImageFile
        if content.startswith(b"\xff\xd8\xff"):
            image = JpegImageFile(io.BytesIO(content))
        elif content.startswith(b"\x89PNG\r\n\x1a\n"):
            image = PngImageFile(io.BytesIO(content))
        elif content.startswith(b"RIFF") and content[8:12] == b"WEBP":
            _check_pixels(name, *webp_size(content))
            image = WebPImageFile(io.BytesIO(content))
        else:
            raise ImageError(name, "this is not an image that can be read; JPEG, PNG and WebP files are")
        _check_pixels(name, *image.size)
        return image


@contextmanager
def _decoder_errors(name: str) -> Iterator[None]:
    """Turn any error of a decoder into an `ImageError` about this image."""
    try:
        yield
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # decoders raise many kinds of errors on damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(name, f"the file is damaged and cannot be decoded ({reason})") from None


def _check_pixels(name: str, width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ImageLimitError(name, f"it has {width}×{height} pixels, more than the limit of {MAX_PIXELS:,}")


class Orientation(NamedTuple):
    """What turns stored pixels upright: transpose first, then mirror."""

    transpose: bool = False
    flip_x: bool = False
    flip_y: bool = False

    def size(self, width: Side, height: Side) -> tuple[Side, Side]:
        """Width and height of the upright image from those of the stored one, and vice versa."""
        return (height, width) if self.transpose else (width, height)

    def turn_upright(self, image: Image.Image) -> Image.Image:
        """The upright image."""
        return image.transpose(_PILLOW[self]) if self in _PILLOW else image


_PILLOW = {
    Orientation(flip_x=True): Transpose.FLIP_LEFT_RIGHT,
    Orientation(flip_x=True, flip_y=True): Transpose.ROTATE_180,
    Orientation(flip_y=True): Transpose.FLIP_TOP_BOTTOM,
    Orientation(transpose=True): Transpose.TRANSPOSE,
    Orientation(transpose=True, flip_x=True): Transpose.ROTATE_270,
    Orientation(transpose=True, flip_x=True, flip_y=True): Transpose.TRANSVERSE,
    Orientation(transpose=True, flip_y=True): Transpose.ROTATE_90,
}
_EXIF = dict(enumerate(_PILLOW, start=2))  # EXIF values in this order; 1 is upright


def read_orientation(image: Image.Image) -> Orientation:
    """The EXIF orientation of a file; upright if it has none or its EXIF data are damaged."""
    try:
        value = image.getexif().get(Base.Orientation)
    except Exception:  # damaged EXIF data do not make the pixels unusable
        value = None
    return _EXIF.get(value, Orientation()) if isinstance(value, int) else Orientation()


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB.

    >>> to_rgb(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode.startswith("I"):
        image = _upper_bits(image)
    elif image.mode == "RGB" and any(value > 255 for value in image.info.get("transparency", ())):
        image.info["transparency"] = tuple(value >> 8 for value in image.info["transparency"])
    if not image.has_transparency_data:
        return image.convert("RGB")
    flat = Image.new("RGB", image.size)
    for top in range(0, image.height, _STRIP):  # in strips: each step makes a copy, and a large image has many
        layer = image.crop((0, top, image.width, min(top + _STRIP, image.height))).convert("RGBA")
        flat.paste(Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB"), (0, top))
    return flat


def _upper_bits(image: Image.Image) -> Image.Image:
    """A 16-bit gray image in 8 bits, with the gray value that means transparency as an alpha channel."""
    values = np.asarray(image)
    gray = Image.fromarray((values >> 8).astype(np.uint8))
    transparent = image.info.get("transparency")
    if transparent is not None:
        gray.putalpha(Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8)))
    return gray
