"""Small image files that take long to decode, for tests and `make attack`."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image


def jpeg(size: tuple[int, int] = (640, 480), **options: object) -> bytes:
    """An honest photo: a gradient with noise."""
    width, height = size
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 200, width, dtype=np.uint8)[None, :, None].repeat(height, 0).repeat(3, 2)
    noise = rng.integers(0, 40, ((height + 7) // 8, (width + 7) // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    file = io.BytesIO()
    Image.fromarray(ramp + noise[:height, :width]).save(file, "JPEG", **options)
    return file.getvalue()


def repeated_scans(size: tuple[int, int] = (6000, 6000), scans: int = 1500) -> bytes:
    """A progressive JPEG of one color whose last scan is repeated."""
    file = io.BytesIO()
    Image.new("RGB", size, "gray").save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * scans + b"\xff\xd9"


def fill_bytes(size: int) -> bytes:
    """A JPEG that has `size` fill bytes between two markers, and no picture."""
    return b"\xff\xd8" + b"\xff" * size


def junk_bytes(size: int) -> bytes:
    """A JPEG with bytes that belong to no segment before its picture."""
    return b"\xff\xd8\xff\xfe\0\2" + b"\0" * size + jpeg()[2:]


def app_segments(count: int, kind: int = 0xE5, payload: bytes = b"") -> bytes:
    """A JPEG with many metadata segments."""
    segment = b"\xff" + bytes([kind]) + struct.pack(">H", len(payload) + 2) + payload
    return b"\xff\xd8" + segment * count + jpeg()[2:]


def exif_segments(size: int) -> bytes:
    """A JPEG whose EXIF data of `size` bytes come in pieces."""
    return app_segments(size // 65000, 0xE1, b"Exif\0\0" + b"\0" * 64990)


def photoshop_segments(count: int) -> bytes:
    """A JPEG with many Photoshop segments of many small resources."""
    resource = b"8BIM\x04\x04\0\0\0\0\0\0"
    return app_segments(count, 0xED, b"Photoshop 3.0\0" + resource * 5400)


def png(chunks: bytes = b"", size: tuple[int, int] = (64, 64)) -> bytes:
    """A PNG with chunks before its pixels."""
    width, height = size
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * (height * (1 + 3 * width))))
    return b"\x89PNG\r\n\x1a\n" + header + chunks + pixels + chunk(b"IEND", b"")


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_chunks(count: int, kind: bytes = b"prIv") -> bytes:
    """A PNG with many empty chunks."""
    return png(chunk(kind, b"") * count)


def empty_idat_chunks(count: int) -> bytes:
    """A PNG whose pixels follow many empty chunks of pixels."""
    return png(chunk(b"IDAT", b"") * count)


def webp_chunks(count: int) -> bytes:
    """A WebP with many empty chunks behind its picture."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "WEBP")
    simple = file.getvalue()[12:]
    header = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + (63).to_bytes(3, "little") * 2
    body = b"WEBP" + header + simple + (b"JUNK" + struct.pack("<I", 0)) * count
    return b"RIFF" + struct.pack("<I", len(body)) + body
