from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from formats.compare import rows, same, states
from formats.layouts import arbitrary
from formats.layouts import objects365 as layout
from tagfill.errors import DatasetError
from tagfill.formats import objects365

TRAIN = "train/patch16/objects365_v2_00000007.jpg"
VAL = "val/patch0/objects365_v1_00000020.jpg"


@pytest.fixture
def folder(tmp_path):
    layout.write(
        tmp_path,
        "train",
        [layout.image(7, 16, "v2"), layout.image(8)],
        [layout.box(1, 7, 3, [512, 192, 256, 384], iscrowd=1, isfake=1), layout.box(2, 7, 1, [-20.5, 0, 276.5, 768])],
    )
    layout.write(tmp_path, "val", [layout.image(20)], [layout.box(3, 20, 2, [0, 0, 10, 10])])
    return tmp_path


def test_labels_and_splits(folder):
    dataset = objects365.read(folder)

    assert states(dataset) == {
        TRAIN: {"Person": 1, "Sneakers": 0, "Chair": 1},
        VAL: {"Person": 0, "Sneakers": 1, "Chair": 0},
    }
    assert dataset.images["split"].to_pylist() == ["train", "val"]


def test_boxes_are_relative_cut_to_the_image_and_flagged(folder):
    found = rows(objects365.read(folder, exhaustive=False), ("image", "label", "kind", "x", "y", "w", "h", "flags"))

    assert found[:2] == [
        (TRAIN, "Chair", "box", 0.625, 0.5, 0.25, 0.5, ("crowd", "fake")),
        (TRAIN, "Person", "box", 0.125, 0.5, 0.25, 1.0, None),
    ]
    assert found[2][3] == np.float32(5 / 1024)


def test_images_may_lie_in_a_folder_of_images(folder):
    (folder / "images" / "train").mkdir(parents=True)

    assert objects365.read(folder).names() == [f"images/{TRAIN}", VAL]


def test_files_may_lie_in_a_folder_of_annotations(folder, tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    folder.rename(base / "annotations")

    assert objects365.read(base).names() == [TRAIN, VAL]


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"has no zhiyuan_objv2_train\.json"):
        objects365.read(tmp_path)


@settings(max_examples=15, deadline=None)
@given(
    arbitrary.datasets(
        name="{split}/patch3/objects365_v2_{number:08d}.jpg", flags=("crowd", "fake", "reflected"), kinds=("box",)
    )
)
def test_everything_in_the_files_is_read(dataset):
    with tempfile.TemporaryDirectory() as folder:
        layout.write_dataset(Path(folder), dataset)

        assert same(objects365.read(folder, images="all"), dataset)
