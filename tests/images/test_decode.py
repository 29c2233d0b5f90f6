"""Decoding: upright RGB pixels from every kind of file, and an error that names the image for the others."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile
from PIL.ExifTags import Base

from images.pictures import encode, noise, photo, png, write
from tagfill.errors import ImageError
from tagfill.images import CROP, EVAL, Geometry, View, decode, load_view, render
from tagfill.images.decode import MAX_PIXELS, EncodedImage, open_header
from tagfill.images.views import _required_size
from tagfill.rng import generator


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


def test_gray_becomes_three_equal_channels(tmp_path):
    assert pixels(tmp_path, encode(picture("L", [0, 77, 255]))) == [(0, 0, 0), (77, 77, 77), (255, 255, 255)]


def test_gray_jpeg(tmp_path):
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


def test_alpha_is_composited_on_white(tmp_path):
    values = [(10, 20, 30, 255), (10, 20, 30, 0), (0, 100, 255, 51)]
    mixed = tuple(round((51 * value + 204 * 255) / 255) for value in (0, 100, 255))
    assert pixels(tmp_path, encode(picture("RGBA", values))) == [(10, 20, 30), (255, 255, 255), mixed]


def test_transparent_webp(tmp_path):
    values = [(10, 20, 30, 255), (10, 20, 30, 0)]
    content = encode(picture("RGBA", values), "WEBP", lossless=True, exact=True)
    assert pixels(tmp_path, content) == [(10, 20, 30), (255, 255, 255)]


def test_gray_with_alpha(tmp_path):
    assert pixels(tmp_path, encode(picture("LA", [(0, 255), (0, 0), (0, 51)]))) == [
        (0, 0, 0),
        (255, 255, 255),
        (204, 204, 204),
    ]


def test_one_gray_value_that_means_transparency(tmp_path):
    assert pixels(tmp_path, encode(picture("L", [7, 8]), transparency=7)) == [(255, 255, 255), (8, 8, 8)]


def test_one_color_that_means_transparency(tmp_path):
    values = [(7, 8, 9), (7, 8, 10)]
    assert pixels(tmp_path, encode(picture("RGB", values), transparency=(7, 8, 9))) == [(255, 255, 255), (7, 8, 10)]


def test_sixteen_bit_gray_is_scaled_and_not_clipped(tmp_path):
    rows = b"\0" + struct.pack(">4H", 0, 256, 32768, 65535)
    expected = [(value,) * 3 for value in (0, 1, 128, 255)]
    assert pixels(tmp_path, png(4, 1, 16, 0, rows)) == expected


def test_sixteen_bit_gray_with_a_transparent_value(tmp_path):
    rows = b"\0" + struct.pack(">2H", 1000, 1001)
    assert pixels(tmp_path, png(2, 1, 16, 0, rows, (b"tRNS", struct.pack(">H", 1000)))) == [(255, 255, 255), (3, 3, 3)]


def test_sixteen_bit_color_is_scaled_and_not_clipped(tmp_path):
    rows = b"\0" + struct.pack(">6H", 0, 256, 65535, 32768, 511, 512)
    assert pixels(tmp_path, png(2, 1, 16, 2, rows)) == [(0, 1, 255), (128, 1, 2)]


def test_sixteen_bit_color_with_a_transparent_value(tmp_path):
    rows = b"\0" + struct.pack(">6H", 30000, 256, 65535, 32768, 511, 512)
    key = struct.pack(">3H", 30000, 256, 65535)
    assert pixels(tmp_path, png(2, 1, 16, 2, rows, (b"tRNS", key))) == [(255, 255, 255), (128, 1, 2)]


def test_sixteen_bit_alpha(tmp_path):
    rows = b"\0" + struct.pack(">8H", 2560, 5120, 7680, 65535, 0, 0, 0, 0)
    assert pixels(tmp_path, png(2, 1, 16, 6, rows)) == [(10, 20, 30), (255, 255, 255)]


def test_sixteen_bit_gray_with_alpha(tmp_path):
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
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "lime", "blue")]
    content = encode(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, lossless=True)
    assert set(pixels(tmp_path, content)) == {(255, 0, 0)}


def test_first_picture_of_a_stereo_jpeg(tmp_path):
    frames = [Image.new("L", (8, 8), gray) for gray in (40, 200)]
    content = encode(frames[0], "MPO", save_all=True, append_images=frames[1:])
    assert set(pixels(tmp_path, content)) == {(40, 40, 40)}


# Orientation


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
    encoded = EncodedImage("a", (tmp_path / "a").read_bytes())
    assert (encoded.width, encoded.height) == encoded.decode().size == ((64, 40) if orientation < 5 else (40, 64))


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_reduced_jpegs_are_turned(tmp_path, orientation):
    write(tmp_path, "a", encode(photo(320, 640), "JPEG", exif=exif(orientation), quality=95))
    full, reduced = decode(tmp_path, "a"), decode(tmp_path, "a", shrink_to=(40, 40))
    assert reduced.size == (full.width // 4, full.height // 4)
    assert np.abs(np.asarray(full.reduce(4), float) - np.asarray(reduced, float)).mean() < 2


@pytest.mark.parametrize("value", [0, 9, 77])
def test_invalid_orientations_are_upright(tmp_path, value):
    write(tmp_path, "a", encode(Image.fromarray(noise(5, 8)), exif=exif(value)))
    assert np.array_equal(np.asarray(decode(tmp_path, "a")), noise(5, 8))


def test_views_see_the_upright_image(tmp_path):
    stored = noise(5, 8)
    write(tmp_path, "a", encode(Image.fromarray(stored), exif=exif(6)))
    pixels, _ = load_view(tmp_path, "a", EVAL, (8, 5), seed=0)
    assert np.array_equal(pixels, UPRIGHT[6](stored))


# Large JPEGs are decoded at a fraction of their size


SIZES = [(1024, 768), (1000, 1000), (1023, 767), (1024, 767), (1020, 764), (96, 1600)]  # width, height
VIEWS = {"eval": EVAL, "crop": CROP, "small crop": View(scale=(0.02, 0.05))}


def full_view(folder, view: View, size: tuple[int, int], index: int):
    """What `load_view` shows, from the image decoded at its full size."""
    image = decode(folder, "a.jpg")
    geometry = view.draw(generator(7, "view", 0, index), image.width, image.height)
    return render(image, geometry, size), geometry


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}×{size[1]}")
def test_views_are_near_those_of_the_full_image(tmp_path, size, name):
    write(tmp_path, "a.jpg", encode(photo(size[1], size[0]), "JPEG", quality=95))
    for index in range(3):
        pixels, geometry = load_view(tmp_path, "a.jpg", VIEWS[name], (64, 64), seed=7, index=index)
        expected, expected_geometry = full_view(tmp_path, VIEWS[name], (64, 64), index)
        assert np.array_equal(geometry.box, expected_geometry.box)
        assert np.abs(pixels.astype(float) - expected).mean() < 1


@pytest.mark.parametrize(
    ("size", "shrink_to", "decoded"),
    [
        ((1024, 768), (64, 64), (256, 192)),  # an eighth would leave 96 rows, fewer than twice 64
        ((1024, 768), (64, 48), (128, 96)),
        ((1024, 768), (600, 10), (1024, 768)),
        ((1024, 766), (64, 64), (512, 383)),  # a quarter has a rest
        ((1023, 768), (64, 64), (1023, 768)),
    ],
)
def test_reduction_leaves_enough_pixels_and_no_remainder(tmp_path, size, shrink_to, decoded):
    write(tmp_path, "a.jpg", encode(photo(size[1], size[0]), "JPEG"))
    assert decode(tmp_path, "a.jpg", shrink_to=shrink_to).size == decoded


@pytest.mark.parametrize("step", [2, 4, 8])
def test_reduced_pixels_are_means_of_the_full_ones(tmp_path, step):
    """An edge between two blocks of one color stays where it is, to the pixel."""
    image = photo(256, 512)
    image.paste("black", (0, 0, 256, 256))
    image.paste("white", (256, 0, 512, 256))
    write(tmp_path, "a.jpg", encode(image, "JPEG", quality=95))
    reduced = np.asarray(decode(tmp_path, "a.jpg", shrink_to=(256 / step, 128 / step)))
    assert reduced.shape[:2] == (256 // step, 512 // step)
    assert reduced[:, : 256 // step].max() < 8
    assert reduced[:, 256 // step :].min() > 247


def test_small_crop_needs_a_large_image():
    box = np.array([[0.25, 0.5, 0.5, 0.625]], np.float32)
    geometry = Geometry(box, *(np.zeros(1, bool) for _ in range(2)), np.ones(1, bool))
    assert _required_size(geometry, (100, 200)) == (800, 800)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_only_jpegs_are_reduced(tmp_path, kind):
    write(tmp_path, "a", encode(photo(256, 256), kind))
    assert decode(tmp_path, "a", shrink_to=(8, 8)).size == (256, 256)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_colors_are_reduced_too(tmp_path, mode):
    write(tmp_path, "a.jpg", encode(photo(256, 256).convert(mode), "JPEG"))
    image = decode(tmp_path, "a.jpg", shrink_to=(16, 16))
    assert (image.mode, image.size) == ("RGB", (32, 32))


# Bad files


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def webp_header(width: int, height: int) -> bytes:
    """The beginning of an extended WebP file that announces a canvas of this size."""
    canvas = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    return b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + canvas


def jpeg_header(width: int, height: int) -> bytes:
    """A JPEG of 8×8 pixels that announces another size."""
    content = encode(photo(8, 8), "JPEG")
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


PICTURE = photo(64, 48)
BAD = {
    "empty": (b"", "the file is empty"),
    "text": (b"<html>not found</html>", "JPEG, PNG and WebP"),
    "gif": (encode(PICTURE, "GIF"), "JPEG, PNG and WebP"),
    "tiff": (encode(PICTURE, "TIFF"), "JPEG, PNG and WebP"),
    "three bytes": (b"\xff\xd8\xff", "damaged"),
    "half a jpeg": (half(encode(PICTURE, "JPEG")), "damaged"),
    "half a png": (half(encode(PICTURE, "PNG")), "damaged"),
    "half a webp": (half(encode(PICTURE, "WEBP")), "damaged"),
    "png signature alone": (b"\x89PNG\r\n\x1a\n", "damaged"),
    "webp signature alone": (b"RIFF\0\0\0\0WEBPVP8 ", "damaged"),
    "png with broken pixels": (encode(PICTURE)[:100] + bytes(50) + encode(PICTURE)[150:], "damaged"),
    "png bomb": (png(100_000, 100_000, 8, 2, b""), "100000×100000 pixels"),
    "webp bomb": (webp_header(100_000, 40_000), "100000×40000 pixels"),
    "jpeg bomb": (jpeg_header(65_000, 65_000), "65000×65000 pixels"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_content_is_an_error_about_this_image(tmp_path, kind):
    content, problem = BAD[kind]
    write(tmp_path, "a/b.jpg", content)
    with pytest.raises(ImageError, match=problem) as caught:
        decode(tmp_path, "a/b.jpg")
    assert caught.value.image == "a/b.jpg"


@pytest.mark.parametrize("kind", BAD)
def test_loading_a_view_of_a_bad_image_raises_the_same(tmp_path, kind):
    content, problem = BAD[kind]
    write(tmp_path, "a.jpg", content)
    with pytest.raises(ImageError, match=problem):
        load_view(tmp_path, "a.jpg", EVAL, (8, 8), seed=0)


@pytest.mark.parametrize("step", range(1, 12))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_cut_anywhere_a_file_is_either_bad_or_complete(tmp_path, kind, step):
    whole = encode(PICTURE, kind)
    write(tmp_path, "a", whole[: len(whole) * step // 12])
    with pytest.raises(ImageError):
        decode(tmp_path, "a")


def test_missing_file(tmp_path):
    with pytest.raises(ImageError, match="no such file below"):
        decode(tmp_path, "a.jpg")


def test_file_in_the_place_of_a_folder(tmp_path):
    write(tmp_path, "a", b"text")
    with pytest.raises(ImageError, match="no such file below"):
        decode(tmp_path, "a/b.jpg")


def test_folder(tmp_path):
    (tmp_path / "a.jpg").mkdir()
    with pytest.raises(ImageError, match=r"a\.jpg: this is a folder"):
        decode(tmp_path, "a.jpg")


def test_named_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(ImageError, match="special file"):
        decode(tmp_path, "a.jpg")


def test_file_of_too_many_bytes_is_not_read(tmp_path):
    with (tmp_path / "a.jpg").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ImageError, match="bytes, more than the limit"):
        decode(tmp_path, "a.jpg")


@pytest.mark.parametrize(
    "name", ["../a.jpg", "a/../../b.jpg", "/a.jpg", "..", r"..\a.jpg", r"C:\a.jpg", "c:a.jpg", r"\a.jpg", r"\\host\s\a"]
)
def test_names_that_lead_out_of_the_root_are_refused(tmp_path, name):
    below = tmp_path / "below"
    below.mkdir()
    write(tmp_path, "a.jpg", encode(PICTURE))
    with pytest.raises(ImageError, match="leads out of the image root"):
        decode(below, name)


@pytest.mark.parametrize("name", ["", ".", "a\0.jpg", "\ud800.jpg"])
def test_names_that_no_file_can_have_are_refused(tmp_path, name):
    with pytest.raises(ImageError, match="cannot be the name of a file"):
        decode(tmp_path, name)


def test_name_with_dots_is_not_an_escape(tmp_path):
    write(tmp_path, "a..b/..c.jpg", encode(PICTURE))
    assert decode(tmp_path, "a..b/..c.jpg").size == PICTURE.size


def test_symbolic_links_are_followed(tmp_path):
    write(tmp_path, "elsewhere/a.png", encode(PICTURE))
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "b.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    assert decode(tmp_path / "root", "b.png").size == PICTURE.size


def test_limit_is_checked_before_memory_is_allocated():
    tracemalloc.start()
    try:
        with pytest.raises(ImageError):
            open_header("a.png", png(100_000, 100_000, 8, 2, b""))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_limit_itself_is_allowed():
    assert open_header("a.png", png(8_000, 8_000, 1, 0, b"")).size == (8_000, 8_000)
    assert MAX_PIXELS == 8_000 * 8_000
    with pytest.raises(ImageError):
        open_header("a.png", png(8_000, 8_001, 1, 0, b""))


def test_global_settings_of_pillow_have_no_effect_and_stay(tmp_path, monkeypatch):
    write(tmp_path, "a.png", encode(PICTURE))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10 * 48)  # Image.open would warn, and warnings are errors here
    decode(tmp_path, "a.png")
    assert Image.MAX_IMAGE_PIXELS == 10 * 48
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_exif_data_do_not_spoil_the_picture(tmp_path):
    for number, exif in enumerate([b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM", b"Exif\0\0" + bytes(40), b"?"]):
        content = encode(PICTURE, "JPEG", exif=exif)
        write(tmp_path, f"{number}.jpg", content)
        assert decode(tmp_path, f"{number}.jpg").size == PICTURE.size


def test_errors_of_the_file_system_name_the_image(tmp_path, monkeypatch):
    write(tmp_path, "a.jpg", b"x")

    def refuse(self: Path, mode: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ImageError, match=r"a\.jpg: the file cannot be read \(Permission denied\)"):
        decode(tmp_path, "a.jpg")
