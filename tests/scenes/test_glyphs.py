from __future__ import annotations

import numpy as np
import pytest
from PIL import ImageFont

from tagfill.scenes.glyphs import PICTOGRAMS, font_path, stamp

NOT_IN_THE_FONT = "\U0010fffd"


@pytest.mark.parametrize("pictogram", PICTOGRAMS, ids=lambda pictogram: pictogram.name)
def test_the_font_has_every_pictogram(pictogram):
    font = ImageFont.truetype(str(font_path()), 40)

    assert bytes(font.getmask(pictogram.character)) != bytes(font.getmask(NOT_IN_THE_FONT))


@pytest.mark.parametrize("extent", [20, 64, 100])
def test_the_longer_side_is_the_extent(extent):
    ink = stamp("✉", extent, angle=0.0, mirrored=False).ink

    assert np.ptp(np.flatnonzero((ink >= 128).any(axis=0))) + 1 == pytest.approx(extent, abs=2)


def test_the_body_of_a_ring_includes_its_hole():
    drawn = stamp("⚙", 64, angle=0.0, mirrored=False)
    rows, columns = drawn.ink.shape

    quarter = (rows // 2, columns // 2 + columns // 6)
    assert drawn.ink[quarter] < 128 <= drawn.body[quarter]


def test_an_open_shape_has_no_hole():
    drawn = stamp("☀", 64, angle=0.0, mirrored=False)

    assert np.array_equal(drawn.ink >= 128, drawn.body >= 128)


def test_a_mirrored_stamp_is_the_other_way_round():
    straight = stamp("♞", 64, angle=0.0, mirrored=False).ink.astype(int)
    mirrored = stamp("♞", 64, angle=0.0, mirrored=True).ink.astype(int)

    assert np.abs(straight[:, ::-1] - mirrored).max() <= 1


def test_a_quarter_turn_swaps_the_sides():
    lying = stamp("☁", 64, angle=0.0, mirrored=False).ink
    standing = stamp("☁", 64, angle=np.pi / 2, mirrored=False).ink

    assert standing.shape == pytest.approx(lying.shape[::-1], abs=1)
