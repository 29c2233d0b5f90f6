from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from pycocotools import mask as coco_mask

from formats.compare import rows, same, states
from formats.layouts import arbitrary
from formats.layouts import lvis as layout
from tagfill.errors import DatasetError
from tagfill.formats import lvis

FIRST, SECOND = "train2017/000000000030.jpg", "val2017/000000000004.jpg"


@pytest.fixture
def folder(tmp_path):
    """The val split of v1 holds images of COCO's val2017 and of its train2017."""
    layout.write(
        tmp_path,
        "lvis_v1_val",
        [layout.image(4, "val2017", absent=(2,), partly=(9,)), layout.image(30, absent=(1, 5))],
        [layout.polygon(1, 4, 1), layout.polygon(2, 4, 9), layout.polygon(3, 4, 1)],
    )
    return tmp_path


def message(folder, **options):
    with pytest.raises(DatasetError) as error:
        lvis.read(folder, **options)
    return str(error.value).replace(str(folder), "FOLDER")


def test_only_what_was_verified_is_known(folder):
    assert states(lvis.read(folder)) == {
        FIRST: {"aerosol_can": 0, "air_conditioner": -1, "alligator": 0, "zucchini": -1},
        SECOND: {"aerosol_can": 1, "air_conditioner": 0, "alligator": -1, "zucchini": 1},
    }


def test_rows(folder):
    found = rows(lvis.read(folder), ("image", "label", "present", "kind", "flags"))

    assert found == [
        (FIRST, "aerosol_can", False, "image", None),
        (FIRST, "alligator", False, "image", None),
        (SECOND, "aerosol_can", True, "mask", None),
        (SECOND, "aerosol_can", True, "mask", None),
        (SECOND, "air_conditioner", False, "image", None),
        (SECOND, "zucchini", True, "image", ("not_exhaustive",)),
        (SECOND, "zucchini", True, "mask", None),
    ]


def test_masks_are_those_of_pycocotools(folder):
    polygons = layout.polygon(1, 4, 1)["segmentation"]
    expected = coco_mask.frPyObjects(polygons, 80, 100)[0]["counts"]

    assert set(lvis.read(folder).rows()["rle"].to_pylist()) == {None, expected}


def test_names_of_v05_are_those_of_coco_2017(tmp_path):
    layout.write(tmp_path, "lvis_v0.5_train", [layout.old_image(30)], [layout.polygon(1, 30, 1)])

    assert lvis.read(tmp_path).names() == [FIRST]


def test_one_of_two_versions_must_be_chosen(folder):
    layout.write(folder, "lvis_v0.5_train", [layout.old_image(30)], [])

    assert message(folder) == "FOLDER has v1 and v0.5 of LVIS; choose one with version=."
    assert len(lvis.read(folder, version="v0.5")) == 1


def test_absent_and_shown_is_a_contradiction(tmp_path):
    layout.write(tmp_path, "lvis_v1_train", [layout.image(30, absent=(1,))], [layout.polygon(1, 30, 1)])

    assert message(tmp_path).endswith("image 30: 'aerosol_can' is both verified absent and shown by an annotation.")


def test_unknown_categories_are_named(tmp_path):
    layout.write(tmp_path, "lvis_v1_train", [layout.image(30, absent=(3,))], [])

    assert "image 30: neg_category_ids has category 3, which is not among the categories." in message(tmp_path)


def test_a_file_of_coco_is_refused(tmp_path):
    item = layout.image(30)
    del item["neg_category_ids"]
    layout.write(tmp_path, "lvis_v1_train", [item], [])

    assert message(tmp_path).endswith("image 30 has no neg_category_ids; this is not a file of LVIS.")


def test_a_folder_without_files_is_refused(tmp_path):
    assert message(tmp_path) == "FOLDER has no lvis_v1_train.json and no lvis_v1_val.json."


@settings(max_examples=25, deadline=None)
@given(arbitrary.datasets(kinds=("box", "mask"), states=(1, 0, -1), unlocated={"flags": ["not_exhaustive"]}))
def test_everything_in_the_files_is_read(dataset):
    with tempfile.TemporaryDirectory() as folder:
        layout.write_dataset(Path(folder), dataset)

        assert same(lvis.read(folder), dataset)
