"""Class maps, boxes and grids are drawn at the right places in the right colors."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from tagfill.errors import TagfillError
from tagfill.experiments import pictures

GRAY = Image.new("RGB", (140, 70), (128, 128, 128))
VIRIDIS_LOW, VIRIDIS_HIGH = (68, 1, 84), (253, 231, 37)  # its published ends


def mixed(color: tuple[int, int, int], opacity: float) -> list[int]:
    return [round(opacity * part + (1 - opacity) * 128) for part in color]


def test_overlay_mixes_the_ends_of_the_color_map_with_the_image() -> None:
    values = np.zeros((7, 7))
    values[1, 5] = 3.0

    picture = np.asarray(pictures.overlay_class_map(GRAY, values))

    assert picture.shape == (70, 140, 3)
    assert picture[60, 20] == pytest.approx(mixed(VIRIDIS_LOW, 0.25), abs=1)
    assert picture[14:16, 109:111].mean((0, 1)) == pytest.approx(mixed(VIRIDIS_HIGH, 0.8), abs=6)


def test_minmax_does_not_see_scale_and_shift_and_sigmoid_does() -> None:
    values = np.random.default_rng(0).normal(size=(5, 5))
    other = 3 * values + 2

    assert (
        np.abs(difference(pictures.overlay_class_map(GRAY, values), pictures.overlay_class_map(GRAY, other))).max() <= 1
    )
    sigmoid = (pictures.overlay_class_map(GRAY, each, scaling="sigmoid") for each in (values, other))
    assert np.abs(difference(*sigmoid)).max() > 20


def test_sigmoid_shows_probabilities_and_large_logits_do_no_harm() -> None:
    shown = [
        np.asarray(pictures.overlay_class_map(GRAY, np.full((3, 3), logit), scaling="sigmoid"))[0, 0]
        for logit in (-1e4, 1e4)
    ]

    assert shown[0] == pytest.approx(mixed(VIRIDIS_LOW, 0.25), abs=1)
    assert shown[1] == pytest.approx(mixed(VIRIDIS_HIGH, 0.8), abs=1)


def test_a_flat_map_says_nothing() -> None:
    picture = np.asarray(pictures.overlay_class_map(GRAY, np.full((7, 7), 5.0)))

    assert (picture == mixed(VIRIDIS_LOW, 0.25)).all()


def test_boxes_are_drawn_at_their_edges_and_the_image_is_left_alone() -> None:
    before = GRAY.copy()

    picture = np.asarray(pictures.draw_boxes(GRAY, np.array([[0.5, 0.5, 0.5, 0.6]])))

    assert picture[35, 35].tolist() == [255, 64, 64]  # the left edge
    assert picture[14, 70].tolist() == [255, 64, 64]  # the upper edge
    assert picture[35, 70].tolist() == [128, 128, 128]
    assert picture[35, 10].tolist() == [128, 128, 128]
    assert GRAY.tobytes() == before.tobytes()


def test_a_point_is_a_dot() -> None:
    picture = np.asarray(pictures.draw_boxes(GRAY, np.array([[0.25, 0.5, 0, 0]])))

    assert picture[35, 35].tolist() == [255, 64, 64]
    assert (picture[:, 60:] == 128).all()


def test_grid_keeps_proportions_and_order() -> None:
    red, blue = Image.new("RGB", (140, 70), (255, 0, 0)), Image.new("RGB", (30, 60), (0, 0, 255))

    sheet = np.asarray(
        pictures.picture_grid(["one", "two"], [pictures.GridRow("cat", [red, blue], ["", "70%"])], side=100)
    )

    counts = {
        name: np.argwhere((sheet == color).all(2)) for name, color in {"red": (255, 0, 0), "blue": (0, 0, 255)}.items()
    }
    assert len(counts["red"]) == 100 * 50
    assert len(counts["blue"]) == 50 * 100
    assert counts["red"][:, 1].max() < counts["blue"][:, 1].min()


def test_png_is_a_file() -> None:
    assert Image.open(BytesIO(pictures.picture_png(GRAY))).size == GRAY.size


def test_wrong_shapes_and_names_are_refused() -> None:
    with pytest.raises(TagfillError, match="height and width"):
        pictures.overlay_class_map(GRAY, np.zeros((2, 3, 4)))
    with pytest.raises(TagfillError, match="scaling is 'log'"):
        pictures.overlay_class_map(GRAY, np.zeros((3, 4)), scaling="log")
    with pytest.raises(TagfillError, match="'cat' has 1 pictures"):
        pictures.picture_grid(["one", "two"], [pictures.GridRow("cat", [GRAY])])


def difference(one: Image.Image, other: Image.Image) -> np.ndarray:
    return np.asarray(one).astype(int) - np.asarray(other).astype(int)
