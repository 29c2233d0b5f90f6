"""Small pictures with known pixels, and the bytes of files that hold them."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def noise(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random RGB pixels, no two rows or columns alike."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def photo(height: int, width: int, seed: int = 0) -> Image.Image:
    """Smooth random colors, as a photo has them, with a bright disc off the centre."""
    coarse = Image.fromarray(noise(7, 9, seed)).resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.array(coarse)
    y, x = np.ogrid[:height, :width]
    pixels[np.hypot(x - 0.3 * width, y - 0.6 * height) < 0.1 * min(height, width)] = 255
    return Image.fromarray(pixels)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, depth: int, color: int, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG made by hand, for what Pillow does not write: chunks before the pixels, and sixteen bits."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def write(folder: Path, name: str, content: bytes) -> str:
    """Put a file below a folder; gives its name back."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return name
