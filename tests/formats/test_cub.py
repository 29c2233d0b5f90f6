"""CUB-200-2011 attributes."""

from __future__ import annotations

import pytest
from hypothesis import given

from formats.datasets import known_labels, label_states, quick, splits
from formats.layouts import cub as layout
from formats.layouts.cub import ATTRIBUTES, IMAGES, write_cub
from tagfill.errors import DatasetError
from tagfill.formats import cub

CURVED, BLUE = ATTRIBUTES


@pytest.mark.parametrize("nested", ["CUB_200_2011", "CUB_200_2011/CUB_200_2011"])
@pytest.mark.parametrize("above", [True, False], ids=["folder above", "the folder itself"])
def test_attributes_are_labels(tmp_path, nested, above):
    folder = write_cub(tmp_path / nested)
    data = cub.read(tmp_path if above else folder)
    assert data.classes == ATTRIBUTES
    assert known_labels(data) == {IMAGES[0]: {CURVED: False, BLUE: True}, IMAGES[1]: {CURVED: True, BLUE: False}}
    assert splits(data) == {IMAGES[0]: "val", IMAGES[1]: "train"}
    assert data.root == folder / "images"


def test_attributes_may_be_named_inside(tmp_path):
    folder = write_cub(tmp_path / "CUB_200_2011")
    (tmp_path / "attributes.txt").rename(folder / "attributes" / "attributes.txt")
    assert cub.read(tmp_path, held_out="test").classes == ATTRIBUTES


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1 1", r"line 1: found '1 1'; image_id attribute_id is_present"),
        ("1 1 2 3 0.1", r"the last one 1 or 0"),
        ("3 1 1 3 0.1", r"found image 3, which is not listed"),
        ("1 9 1 3 0.1", r"found attribute 9, which is not listed"),
        ("one 1 1 3 0.1", r"found 'one' as an image; a whole number is expected"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, message):
    write_cub(tmp_path / "CUB_200_2011", (row,))
    with pytest.raises(DatasetError, match=message):
        cub.read(tmp_path)


def test_repeated_rows_are_named(tmp_path):
    write_cub(tmp_path / "CUB_200_2011", ("1 1 1 3 0.1", "1 1 0 3 0.1"))
    with pytest.raises(DatasetError, match="line 2: found attribute 1 of image 1 a second time"):
        cub.read(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DatasetError, match=r"has no images\.txt"):
        cub.read(tmp_path)
    folder = write_cub(tmp_path / "CUB_200_2011")
    (folder / "train_test_split.txt").write_text("1 0\n")
    with pytest.raises(DatasetError, match="does not say 1 or 0 for image 2"):
        cub.read(tmp_path)
    (tmp_path / "attributes.txt").unlink()
    with pytest.raises(DatasetError, match=r"There is no attributes\.txt"):
        cub.read(tmp_path)


@given(data=label_states(states=(True, False), splits=("train", "val")))
@quick
def test_every_label_is_read(tmp_path_factory, data):
    folder = layout.write_dataset(tmp_path_factory.mktemp("cub") / "CUB_200_2011", data)
    back = cub.read(folder)
    assert back.classes == data.classes
    assert known_labels(back) == known_labels(data)
    assert splits(back) == splits(data)
