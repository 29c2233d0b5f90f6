"""Thumbnails keep the shape of their image."""

from __future__ import annotations

import pytest
from PIL import Image

from tagfill.errors import ImageError
from tagfill.images import thumbnail


@pytest.mark.parametrize(("size", "expected"), [((400, 300), (160, 120)), ((90, 600), (24, 160)), ((80, 60), (80, 60))])
def test_an_image_fits_and_keeps_its_shape(tmp_path, size, expected):
    Image.new("RGB", size, (200, 10, 10)).save(tmp_path / "a.png")
    assert thumbnail(tmp_path, "a.png", 160).size == expected


def test_a_file_that_is_not_an_image_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"a\.png"):
        thumbnail(tmp_path, "a.png", 160)
