"""What a file says about itself before its pixels are decoded.

Pillow's `Image.open` is not used: its check against decompression bombs is a warning, governed by a global setting and
by filters that threads share. The three formats are told apart here, and a size above the limit is refused from the
header, before any memory is taken for pixels.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from tagfill.errors import ImageError

MAX_PIXELS = 64_000_000


def open_header(name: str, content: bytes) -> ImageFile:
    """The image in `content`, its size known and checked, its pixels not yet decoded.

    Raises:
        ImageError: if it is empty, not a JPEG, PNG or WebP, damaged, or larger than 64 megapixels.
    """
    if not content:
        raise ImageError(name, "the file is empty")
    with blaming(name):
        image: ImageFile
        if content.startswith(b"\xff\xd8\xff"):
            image = JpegImageFile(io.BytesIO(content))
        elif content.startswith(b"\x89PNG\r\n\x1a\n"):
            image = PngImageFile(io.BytesIO(content))
        elif content.startswith(b"RIFF") and content[8:12] == b"WEBP":
            _check_pixels(name, *_webp_size(content))
            image = WebPImageFile(io.BytesIO(content))
        else:
            raise ImageError(name, "this is not an image that can be read; JPEG, PNG and WebP files are")
        _check_pixels(name, *image.size)
        return image


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Turn whatever a decoder raises on damaged bytes into an error about this image."""
    try:
        yield
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # decoders meet damaged bytes with errors of many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(name, f"the file is damaged and cannot be decoded ({reason})") from None


def _check_pixels(name: str, width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ImageError(name, f"it has {width}×{height} pixels, more than the limit of {MAX_PIXELS:,}")


def _webp_size(content: bytes) -> tuple[int, int]:
    """Width and height of a WebP file; its decoder takes memory for the whole canvas as soon as it is made."""
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = content[24:27], content[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = content[26:28], content[28:30]
    return int.from_bytes(width, "little") & 0x3FFF, int.from_bytes(height, "little") & 0x3FFF
