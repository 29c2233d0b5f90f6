"""Objects in notebooks: photos inside the HTML, bounded in number and size, and nothing that raises."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

from PIL import Image

from images import pictures
from tagfill.images.notebook import (
    MAX_PHOTOS,
    Tag,
    Tile,
    contact_sheet,
    counts_table,
    never_raises,
    panel,
    photo_grid,
)


def embedded(html: str) -> list[Image.Image]:
    """The photos inside some HTML."""
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html)
    return [Image.open(io.BytesIO(base64.b64decode(data))) for data in found]


def test_photos_are_small_few_and_whole(tmp_path):
    for number in range(9):
        pictures.write(tmp_path, f"{number}.png", pictures.encode(pictures.photo(300, 600, seed=number)))
    html = photo_grid(tmp_path, [Tile(f"{number}.png") for number in range(9)], total=1200)
    assert [photo.size for photo in embedded(html)] == [(216, 108)] * MAX_PHOTOS
    assert f"and {1200 - MAX_PHOTOS:,} more" in html
    assert len(html) < 200_000


def test_names_tags_and_notes_are_escaped():
    tile = Tile('"><script>.jpg', [Tag("<b>", "added", 0.934)], "<i>")
    html = panel("<u>", photo_grid("no-such-folder", [tile]), counts_table(["<s>"], [["<p>"]]), hint="`<q>`")
    for tag in ("script", "i", "u", "s", "p", "q"):
        assert f"<{tag}>" not in html
        assert f"&lt;{tag}&gt;" in html
    assert "+ &lt;b&gt; 93%" in html
    assert 'title="&quot;&gt;&lt;script&gt;.jpg"' in html


def test_a_photo_that_cannot_be_read_is_a_box_with_the_reason(tmp_path):
    pictures.write(tmp_path, "good.png", pictures.encode(pictures.photo(20, 30)))
    pictures.write(tmp_path, "bad.png", b"no picture")
    html = photo_grid(tmp_path, [Tile("good.png"), Tile("bad.png"), Tile("gone.png"), Tile("../outside.png")])
    assert len(embedded(html)) == 1
    for reason in ("not an image that can be read", "no such file", "leads out of the image root"):
        assert reason in html
    assert "There is no image root" in photo_grid(tmp_path / "nowhere", [Tile("a.jpg")])


def test_tags_beyond_the_limit_are_counted():
    assert "+4 tags" in photo_grid("nowhere", [Tile("a.jpg", [Tag(f"tag{number}") for number in range(10)])])


def test_a_display_that_fails_shows_the_text_and_the_reason():
    class Broken:
        def __repr__(self) -> str:
            return "Broken<1>"

        @never_raises
        def _repr_html_(self) -> Any:
            raise OSError("the disk is <gone>")

    html = Broken()._repr_html_()
    assert "Broken&lt;1&gt;" in html
    assert "the disk is &lt;gone&gt;" in html


def test_a_contact_sheet_has_a_place_for_each_photo(tmp_path):
    Image.new("RGB", (100, 50), (255, 0, 0)).save(tmp_path / "red.png")
    sheet = contact_sheet(tmp_path, [Tile("red.png", [Tag("wide " * 40)]), Tile("gone.png")], side=100)
    assert sheet.getpixel((60, 60)) == (255, 0, 0)
    assert sheet.getpixel((60, 20)) == (0xF2, 0xF2, 0xF2)  # the photo is whole, with bars above and below
    assert sheet.getpixel((215, 105)) == (0xCC, 0xCC, 0xCC)
    assert contact_sheet(tmp_path, []).width > 0
