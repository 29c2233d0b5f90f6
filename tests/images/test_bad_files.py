"""Whatever a file turns out to be, the error names the image."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from PIL import Image, ImageFile

from images.pictures import encode, photo, png, write
from tagfill.errors import ImageError
from tagfill.images import EVAL, decode, load_view
from tagfill.images.decode import MAX_PIXELS, open_header


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
def test_looking_at_a_bad_image_raises_the_same(tmp_path, kind):
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


def test_named_pipe_does_not_wait_for_a_writer(tmp_path):
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


def test_limit_is_checked_before_memory_is_taken():
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


def test_settings_of_pillow_neither_matter_nor_change(tmp_path, monkeypatch):
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

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ImageError, match=r"a\.jpg: the file cannot be read \(Permission denied\)"):
        decode(tmp_path, "a.jpg")
