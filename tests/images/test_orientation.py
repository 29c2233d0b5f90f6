"""Images are upright, however the camera was held."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from PIL.ExifTags import Base

from images.pictures import encode, noise, photo, write
from tagfill.images import EVAL, decode, load_view
from tagfill.images.decode import open_image

# What makes stored pixels upright, from the EXIF standard: where row 0 and column 0 of the stored pixels belong.
UPRIGHT = {
    1: lambda stored: stored,  # top, left
    2: lambda stored: stored[:, ::-1],  # top, right
    3: lambda stored: np.rot90(stored, 2),  # bottom, right
    4: lambda stored: stored[::-1],  # bottom, left
    5: lambda stored: stored.swapaxes(0, 1),  # left, top
    6: lambda stored: np.rot90(stored, -1),  # right, top
    7: lambda stored: np.rot90(stored, 2).swapaxes(0, 1),  # right, bottom
    8: lambda stored: np.rot90(stored, 1),  # left, bottom
}


def exif(orientation: int) -> Image.Exif:
    data = Image.Exif()
    data[Base.Orientation] = orientation
    return data


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_pixels_are_turned(tmp_path, kind, orientation):
    stored = noise(5, 8)
    options = {"lossless": True} if kind == "WEBP" else {}
    write(tmp_path, "a", encode(Image.fromarray(stored), kind, exif=exif(orientation), **options))
    assert np.array_equal(np.asarray(decode(tmp_path, "a")), UPRIGHT[orientation](stored))


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_jpegs_are_turned(tmp_path, orientation):
    plain, turned = (encode(photo(40, 64), "JPEG", **options) for options in ({}, {"exif": exif(orientation)}))
    write(tmp_path, "plain", plain)
    write(tmp_path, "turned", turned)
    expected = UPRIGHT[orientation](np.asarray(decode(tmp_path, "plain")))
    assert np.array_equal(np.asarray(decode(tmp_path, "turned")), expected)


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_size_is_upright_before_decoding(tmp_path, kind, orientation):
    write(tmp_path, "a", encode(photo(40, 64), kind, exif=exif(orientation)))
    encoded = open_image(tmp_path, "a")
    assert (encoded.width, encoded.height) == encoded.decode().size == ((64, 40) if orientation < 5 else (40, 64))


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_reduced_jpegs_are_turned(tmp_path, orientation):
    write(tmp_path, "a", encode(photo(320, 640), "JPEG", exif=exif(orientation), quality=95))
    full, reduced = decode(tmp_path, "a"), decode(tmp_path, "a", shrink_to=(40, 40))
    assert reduced.size == (full.width // 4, full.height // 4)
    assert np.abs(np.asarray(full.reduce(4), float) - np.asarray(reduced, float)).mean() < 2


@pytest.mark.parametrize("value", [0, 9, 77])
def test_values_that_mean_nothing_are_upright(tmp_path, value):
    write(tmp_path, "a", encode(Image.fromarray(noise(5, 8)), exif=exif(value)))
    assert np.array_equal(np.asarray(decode(tmp_path, "a")), noise(5, 8))


def test_views_see_the_upright_image(tmp_path):
    stored = noise(5, 8)
    write(tmp_path, "a", encode(Image.fromarray(stored), exif=exif(6)))
    pixels, _ = load_view(tmp_path, "a", EVAL, (8, 5), seed=0)
    assert np.array_equal(pixels, UPRIGHT[6](stored))
