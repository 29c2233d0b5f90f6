"""The structure of an image file, and the work of decoding it, from its markers and chunks alone.

A limit on pixels and bytes does not bound the time that a decoder takes: a small progressive JPEG can repeat a scan a
thousand times, and a parser can be kept busy with millions of empty segments. So scans, segments and bytes between
them are counted before a decoder sees the file. This takes a few microseconds for an honest photo. What remains is
expressed as work:

    JPEG   pixels · (1 + scans / 8)
    PNG    3 · pixels
    WebP   4 · pixels
    all    + 5 per byte of metadata + 300 per segment or chunk

in units of about 10 ns, the time that one pixel of a plain JPEG takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tagfill.errors import ImageLimitError

MAX_SCANS = 100  # encoders write 10; those that optimize scans, at most 64
MAX_SEGMENTS = 1_024  # of a JPEG, and chunks of a PNG or WebP that are not pixels
MAX_PIXEL_CHUNKS = 4_096  # of a PNG, and one more for every 4 kB of the file; libpng writes chunks of 8 kB
MAX_METADATA = 16 * 2**20  # bytes of segments or chunks that are not pixels
MAX_SKIPPED = 65_536  # bytes between the segments of a JPEG

_SCAN_COST, _PNG_COST, _WEBP_COST = 1 / 8, 3, 4
_METADATA_COST, _SEGMENT_COST = 5, 300

_NOT_FILL = re.compile(rb"[^\xff]")
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


@dataclass(frozen=True)
class Structure:
    """What an image file consists of.

    Attributes:
        pixels: of the image, from its header.
        scans: passes over the pixels.
        segments: of a JPEG, or chunks of a PNG or WebP.
        metadata: bytes of segments or chunks that are not pixels.
        work: of decoding it, in pixels of a plain JPEG.
    """

    pixels: int = 0
    scans: int = 0
    segments: int = 0
    metadata: int = 0
    work: int = 0


def measure(name: str, content: bytes) -> Structure:
    """Count what an image file consists of; nothing is decoded.

    A damaged file is counted as far as its structure goes; the decoder reports the damage.

    Args:
        name: the image's identity, for errors.
        content: of the file.

    Raises:
        ImageLimitError: if it has more scans, segments or bytes between segments than any honest image.

    Example:
        `measure("photo.jpg", Path("photo.jpg").read_bytes()).work` is about 13,500,000 for 12 megapixels.
    """
    if content.startswith(b"\xff\xd8"):
        return _measure_jpeg(name, content)
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return _measure_png(name, content)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return _measure_webp(name, content)
    return Structure()


def _measure_jpeg(name: str, content: bytes) -> Structure:
    pixels = scans = segments = metadata = skipped = 0
    at = 2
    while at < len(content):
        start = content.find(b"\xff", at)
        code = None if start < 0 else _NOT_FILL.search(content, start, start + MAX_SKIPPED + 2)
        end = len(content) if code is None else code.end()
        skipped += end - at - 2
        _limit(name, "bytes between segments", skipped, MAX_SKIPPED)
        at = end
        if code is None:
            break
        kind = code[0][0]
        if kind == 0:  # not a marker
            continue
        if kind == _END_OF_IMAGE:
            break
        segments += 1
        _limit(name, "segments", segments, MAX_SEGMENTS)
        if kind in _WITHOUT_LENGTH:
            continue
        length = int.from_bytes(content[at : at + 2], "big")
        if length < 2:
            break
        if kind in _FRAMES:
            height, width = content[at + 3 : at + 5], content[at + 5 : at + 7]
            pixels = max(pixels, int.from_bytes(height, "big") * int.from_bytes(width, "big"))
        at += length
        if kind == _START_OF_SCAN:
            scans += 1
            _limit(name, "scans", scans, MAX_SCANS)
            at = _end_of_scan(content, at)
        else:
            metadata += length
            _limit(name, "bytes of metadata", metadata, MAX_METADATA)
    work = int(pixels * (1 + scans * _SCAN_COST)) + _METADATA_COST * metadata + _SEGMENT_COST * segments
    return Structure(pixels, scans, segments, metadata, work)


def _end_of_scan(content: bytes, start: int) -> int:
    """Where the pixels of a scan end: at a marker other than a restart, at fill bytes, or with the file."""
    values, size = np.frombuffer(content, np.uint8), 2**14
    while start < len(content):
        block = values[start : start + size + 1]
        following = block[1:]
        ends = (block[:-1] == 0xFF) & (following != 0) & ((following & 0xF8) != 0xD0)
        if ends.any():
            return start + int(ends.argmax())
        start, size = start + size, min(2 * size, 2**20)
    return len(content)


def _measure_png(name: str, content: bytes) -> Structure:
    pixels = chunks = others = metadata = 0
    at = 8
    while at + 8 <= len(content):
        length, kind = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8]
        chunks += 1
        if kind == b"IDAT":
            _limit(name, "chunks", chunks - others, MAX_PIXEL_CHUNKS + len(content) // 4096)
        else:
            others += 1
            metadata += min(length, len(content) - at)
            _limit(name, "bytes of metadata", metadata, MAX_METADATA)
            _limit(name, "chunks", others, MAX_SEGMENTS)
        if kind == b"IHDR":
            width, height = content[at + 8 : at + 12], content[at + 12 : at + 16]
            pixels = max(pixels, int.from_bytes(width, "big") * int.from_bytes(height, "big"))
        if kind == b"IEND":
            break
        at += 12 + length
    work = _PNG_COST * pixels + _METADATA_COST * metadata + _SEGMENT_COST * chunks
    return Structure(pixels, 1, chunks, metadata, work)


def _measure_webp(name: str, content: bytes) -> Structure:
    chunks, at = 0, 12
    while at + 8 <= len(content):
        chunks += 1
        _limit(name, "chunks", chunks, MAX_SEGMENTS)
        length = int.from_bytes(content[at + 4 : at + 8], "little")
        at += 8 + length + length % 2
    width, height = webp_size(content)
    pixels = width * height
    return Structure(pixels, 1, chunks, 0, _WEBP_COST * pixels + _SEGMENT_COST * chunks)


def webp_size(content: bytes) -> tuple[int, int]:
    """Width and height of a WebP file; its decoder allocates the whole canvas as soon as it is created."""
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = content[24:27], content[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = content[26:28], content[28:30]
    return int.from_bytes(width, "little") & 0x3FFF, int.from_bytes(height, "little") & 0x3FFF


def _limit(name: str, what: str, count: int, limit: int) -> None:
    if count > limit:
        raise ImageLimitError(name, f"the file has more than {limit:,} {what}, which no ordinary image has")
