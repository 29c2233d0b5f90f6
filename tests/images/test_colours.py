"""Every way to store colours becomes the RGB values that it stands for."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from images.pictures import encode, noise, png, write
from tagfill.images import decode


def pixels(folder, content: bytes) -> list[tuple[int, ...]]:
    """The decoded pixels of a file, row by row."""
    write(folder, "a", content)
    image = decode(folder, "a")
    assert image.mode == "RGB"
    return [tuple(pixel) for row in np.asarray(image).tolist() for pixel in row]


def picture(mode: str, values: list) -> Image.Image:
    """One row of pixels."""
    image = Image.new(mode, (len(values), 1))
    image.putdata(values)
    return image


def test_rgb_is_kept(tmp_path):
    values = [(1, 2, 3), (250, 251, 252)]
    assert pixels(tmp_path, encode(picture("RGB", values))) == values


def test_lossless_webp_is_kept(tmp_path):
    image = Image.fromarray(noise(5, 7))
    write(tmp_path, "a", encode(image, "WEBP", lossless=True))
    assert np.array_equal(np.asarray(decode(tmp_path, "a")), noise(5, 7))


def test_grey_becomes_three_equal_channels(tmp_path):
    assert pixels(tmp_path, encode(picture("L", [0, 77, 255]))) == [(0, 0, 0), (77, 77, 77), (255, 255, 255)]


def test_grey_jpeg(tmp_path):
    assert pixels(tmp_path, encode(Image.new("L", (2, 1), 90), "JPEG")) == [(90, 90, 90)] * 2


def test_black_and_white(tmp_path):
    assert pixels(tmp_path, encode(picture("1", [0, 255]))) == [(0, 0, 0), (255, 255, 255)]


def test_palette(tmp_path):
    image = picture("P", [1, 0])
    image.putpalette([10, 20, 30, 40, 50, 60])
    assert pixels(tmp_path, encode(image)) == [(40, 50, 60), (10, 20, 30)]


def test_transparent_palette_entry_shows_white(tmp_path):
    image = picture("P", [1, 0])
    image.putpalette([10, 20, 30, 40, 50, 60])
    assert pixels(tmp_path, encode(image, transparency=1)) == [(255, 255, 255), (10, 20, 30)]


def test_half_transparent_palette_entry_is_mixed_with_white(tmp_path):
    image = picture("P", [1, 0])
    image.putpalette([10, 20, 30, 0, 0, 0])
    assert pixels(tmp_path, encode(image, transparency=bytes([255, 51]))) == [(204, 204, 204), (10, 20, 30)]


def test_alpha_is_laid_on_white(tmp_path):
    values = [(10, 20, 30, 255), (10, 20, 30, 0), (0, 100, 255, 51)]
    mixed = tuple(round((51 * value + 204 * 255) / 255) for value in (0, 100, 255))
    assert pixels(tmp_path, encode(picture("RGBA", values))) == [(10, 20, 30), (255, 255, 255), mixed]


def test_transparent_webp(tmp_path):
    values = [(10, 20, 30, 255), (10, 20, 30, 0)]
    content = encode(picture("RGBA", values), "WEBP", lossless=True, exact=True)
    assert pixels(tmp_path, content) == [(10, 20, 30), (255, 255, 255)]


def test_grey_with_alpha(tmp_path):
    assert pixels(tmp_path, encode(picture("LA", [(0, 255), (0, 0), (0, 51)]))) == [
        (0, 0, 0),
        (255, 255, 255),
        (204, 204, 204),
    ]


def test_one_grey_that_stands_for_transparency(tmp_path):
    assert pixels(tmp_path, encode(picture("L", [7, 8]), transparency=7)) == [(255, 255, 255), (8, 8, 8)]


def test_one_colour_that_stands_for_transparency(tmp_path):
    values = [(7, 8, 9), (7, 8, 10)]
    assert pixels(tmp_path, encode(picture("RGB", values), transparency=(7, 8, 9))) == [(255, 255, 255), (7, 8, 10)]


def test_sixteen_bit_grey_is_scaled_and_not_clipped(tmp_path):
    rows = b"\0" + struct.pack(">4H", 0, 256, 32768, 65535)
    expected = [(value,) * 3 for value in (0, 1, 128, 255)]
    assert pixels(tmp_path, png(4, 1, 16, 0, rows)) == expected


def test_sixteen_bit_grey_with_a_transparent_value(tmp_path):
    rows = b"\0" + struct.pack(">2H", 1000, 1001)
    assert pixels(tmp_path, png(2, 1, 16, 0, rows, (b"tRNS", struct.pack(">H", 1000)))) == [(255, 255, 255), (3, 3, 3)]


def test_sixteen_bit_colour_is_scaled_and_not_clipped(tmp_path):
    rows = b"\0" + struct.pack(">6H", 0, 256, 65535, 32768, 511, 512)
    assert pixels(tmp_path, png(2, 1, 16, 2, rows)) == [(0, 1, 255), (128, 1, 2)]


def test_sixteen_bit_colour_with_a_transparent_value(tmp_path):
    rows = b"\0" + struct.pack(">6H", 30000, 256, 65535, 32768, 511, 512)
    key = struct.pack(">3H", 30000, 256, 65535)
    assert pixels(tmp_path, png(2, 1, 16, 2, rows, (b"tRNS", key))) == [(255, 255, 255), (128, 1, 2)]


def test_sixteen_bit_alpha(tmp_path):
    rows = b"\0" + struct.pack(">8H", 2560, 5120, 7680, 65535, 0, 0, 0, 0)
    assert pixels(tmp_path, png(2, 1, 16, 6, rows)) == [(10, 20, 30), (255, 255, 255)]


def test_sixteen_bit_grey_with_alpha(tmp_path):
    rows = b"\0" + struct.pack(">4H", 2560, 65535, 0, 0)
    assert pixels(tmp_path, png(2, 1, 16, 4, rows)) == [(10, 10, 10), (255, 255, 255)]


@pytest.mark.parametrize(
    ("ink", "expected"), [((0, 0, 0, 0), (255, 255, 255)), ((255, 0, 0, 0), (0, 255, 255)), ((0, 0, 0, 255), (0, 0, 0))]
)
def test_cmyk_jpeg(tmp_path, ink, expected):
    content = encode(Image.new("CMYK", (16, 16), ink), "JPEG", quality=100)
    assert np.allclose(pixels(tmp_path, content), expected, atol=2)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_first_frame_of_an_animation(tmp_path, kind):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]
    content = encode(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, lossless=True)
    assert set(pixels(tmp_path, content)) == {(255, 0, 0)}


def test_first_picture_of_a_stereo_jpeg(tmp_path):
    frames = [Image.new("L", (8, 8), grey) for grey in (40, 200)]
    content = encode(frames[0], "MPO", save_all=True, append_images=frames[1:])
    assert set(pixels(tmp_path, content)) == {(40, 40, 40)}
