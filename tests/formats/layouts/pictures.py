"""Small image files."""

from __future__ import annotations

from pathlib import Path

from PIL import Image


def write_picture(path: Path, size: tuple[int, int] = (8, 6), color: tuple[int, int, int] = (200, 30, 60)) -> Path:
    """A picture of one color, in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    formats = {".png": "PNG", ".webp": "WEBP"}
    Image.new("RGB", size, color).save(path, format=formats.get(path.suffix.lower(), "JPEG"))
    return path
