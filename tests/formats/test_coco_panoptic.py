from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from formats.compare import rows, same
from formats.layouts import arbitrary
from formats.layouts import coco_panoptic as layout
from tagfill.errors import DatasetError
from tagfill.formats import coco_panoptic

IMAGE = "val2017/000000000285.jpg"


@pytest.fixture
def folder(tmp_path):
    layout.write(
        tmp_path,
        "val",
        [layout.image(285), layout.image(1000)],
        [
            layout.annotation(
                285,
                layout.segment(4216180, 17, [25, 20, 50, 40]),
                layout.segment(6118766, 93, [0, 0, 100, 80]),
                layout.segment(7, 1, [0, 0, 50, 40], iscrowd=1),
            )
        ],
    )
    return tmp_path


def test_supercategories_are_classes_and_parents(folder):
    dataset = coco_panoptic.read(folder)

    assert dataset.classes == ("person", "cat", "dog", "blanket", "rug-merged", "animal", "textile")
    assert dataset.hierarchy == (
        ("cat", "animal"),
        ("dog", "animal"),
        ("blanket", "textile"),
        ("rug-merged", "textile"),
    )


def test_segments_are_boxes_and_other_classes_absent(folder):
    found = rows(coco_panoptic.read(folder), ("label", "present", "kind", "x", "y", "w", "h", "flags"))

    assert found == [
        ("blanket", True, "box", 0.5, 0.5, 1.0, 1.0, None),
        ("cat", True, "box", 0.5, 0.5, 0.5, 0.5, None),
        ("dog", False, "image", None, None, None, None, None),
        ("person", True, "box", 0.25, 0.25, 0.5, 0.5, ("crowd",)),
        ("rug-merged", False, "image", None, None, None, None, None),
    ]


def test_a_supercategory_without_a_present_class_is_absent(folder):
    found = rows(coco_panoptic.read(folder, images="all"), ("image", "label", "present"))

    absent = [label for image, label, present in found if image != IMAGE and not present]
    assert absent == ["animal", "blanket", "cat", "dog", "person", "rug-merged", "textile"]


def test_plain_classes(folder):
    dataset = coco_panoptic.read(folder, supercategories=False, locations="none")

    assert dataset.hierarchy == ()
    assert dataset.labels().dense().tolist() == [[1, 1, 0, 1, 0]]
    assert dataset.images.to_pylist() == [{"image": IMAGE, "split": "val", "width": 100, "height": 80}]


def test_a_bad_segment_is_named(tmp_path):
    path = layout.write(tmp_path, "val", [layout.image(1)], [layout.annotation(1, layout.segment(5, 2, [0, 0, 1, 1]))])

    with pytest.raises(DatasetError) as error:
        coco_panoptic.read(tmp_path)
    assert str(error.value) == f"{path}, annotation 5 is of category 2, which is not among the categories."


def test_instances_are_refused(tmp_path):
    layout.write(tmp_path, "val", [layout.image(1)], [{"image_id": 1, "category_id": 1}])

    with pytest.raises(DatasetError, match="the annotation of image 1 has no segments_info"):
        coco_panoptic.read(tmp_path)


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"has no annotations/panoptic_train2017\.json"):
        coco_panoptic.read(tmp_path)


def test_a_supercategory_that_is_a_class_itself_has_its_own_above_it(tmp_path, monkeypatch):
    categories = [
        {"id": 1, "name": "cat", "supercategory": "pet", "isthing": 1},
        {"id": 2, "name": "pet", "supercategory": "animal", "isthing": 1},
    ]
    cat = layout.annotation(1, layout.segment(7, 1, [0, 0, 50, 40]))
    monkeypatch.setattr(layout, "CATEGORIES", categories)
    layout.write(tmp_path, "val", [layout.image(1)], [cat])

    assert coco_panoptic.read(tmp_path).labels().dense().tolist() == [[1, 1, 1]]


@settings(max_examples=15, deadline=None)
@given(arbitrary.datasets(flags=("crowd",)))
def test_everything_in_the_files_is_read(dataset):
    with tempfile.TemporaryDirectory() as folder:
        layout.write_dataset(Path(folder), dataset)

        assert same(coco_panoptic.read(folder, images="all"), dataset)
