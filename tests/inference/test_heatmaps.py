"""Pictures of class maps lie under the names of image and class, and show where the class is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inference.colors import write_image, write_model
from tagfill.errors import TagfillError
from tagfill.inference import predict_to_file
from tagfill.inference.files import picture_path


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Red in the upper left quarter, blue elsewhere; twice as wide as high."""
    pixels = np.zeros((60, 120, 3), np.uint8)
    pixels[:, :, 2] = 255
    pixels[:30, :60] = (255, 0, 0)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    return path


def read(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.copy()


def drawn(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.jpg"))


def test_present_labels_are_drawn_over_the_image_as_it_was_taken(photo: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx")

    predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps")

    assert drawn(tmp_path / "maps") == ["blue.jpg"]
    (path,) = (tmp_path / "maps").rglob("blue.jpg")
    picture = np.array(read(path), dtype=int)
    assert picture.shape == (60, 120, 3)
    yellow, violet = picture[50, 100], picture[3, 3]  # the ends of viridis, over blue and over red
    assert yellow[0] > 180
    assert yellow[1] > 150
    assert violet[1] < 40


def test_classes_may_be_chosen_whether_present_or_not(photo: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx")

    predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps", classes=["red", "green"], top_k=1)

    assert drawn(tmp_path / "maps") == ["green.jpg", "red.jpg"]


def test_models_without_maps_are_refused_before_any_work(photo: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx", maps=False)

    with pytest.raises(TagfillError, match="exported without class maps; export the model again with --maps"):
        predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps")

    assert not list(tmp_path.glob("out*"))


def test_no_name_leads_out_of_the_folder() -> None:
    hostile = ["../../etc/x.jpg", "/etc/x.jpg", "a/./../b.jpg", "c:\\x\\..\\y.jpg", "https://host/a?b.jpg"]

    for name in hostile:
        path = picture_path(name, "../up")
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert path.name == "_up.jpg"


def test_large_images_are_drawn_small(tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx")
    photo = write_image(tmp_path / "large.png", (255, 0, 0), size=(1600, 800))

    predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps")

    (path,) = (tmp_path / "maps").rglob("red.jpg")
    assert read(path).size == (640, 320)
