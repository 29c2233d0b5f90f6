from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from formats.compare import rows, same, states
from formats.layouts import arbitrary
from formats.layouts import openimages as layout
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.errors import DatasetError
from tagfill.formats import openimages

FIRST, SECOND = "train/000002b66c9c498e.jpg", "train/000002b97e5471a0.jpg"
FLAGS = ("occluded", "truncated", "group", "depiction", "inside")


def message(source, **options):
    with pytest.raises(DatasetError) as error:
        openimages.read(source, **options)
    return str(error.value).replace(str(source), "FOLDER")


def test_v3_knows_what_was_verified_about_trainable_classes(tmp_path):
    dataset = openimages.read(layout.v3(tmp_path))

    assert dataset.classes == ("Dog", "Cat")
    assert states(dataset) == {
        FIRST: {"Dog": 1, "Cat": 0},
        SECOND: {"Dog": -1, "Cat": 1},
        "validation/0001eeaf4aed83f9.jpg": {"Dog": -1, "Cat": 0},
    }
    assert dataset.images["split"].to_pylist() == ["train", "train", "val"]
    assert rows(dataset, ("image", "label", "present", "source"))[2] == (
        SECOND,
        "Cat",
        True,
        "crowdsource-verification",
    )


def test_all_listed_images(tmp_path):
    layout.v3(tmp_path)
    layout.text(tmp_path / "2017_11" / "validation" / "images.csv", "ImageID,Subset", "0001eeaf4aed83f9,validation")

    assert openimages.read(tmp_path, images="all").names()[:3] == [FIRST, SECOND, "train/0000071d71a0a6f6.jpg"]


def test_all_images_need_a_list(tmp_path):
    assert "There is no list of images beside" in message(layout.v5(tmp_path), images="all")


def test_class_ids_as_names(tmp_path):
    assert openimages.read(layout.v3(tmp_path), names="mid").classes == (layout.DOG, layout.CAT)


def test_without_a_list_the_classes_are_those_of_the_labels(tmp_path):
    layout.v3(tmp_path)
    (tmp_path / "2017_11" / "classes-trainable.txt").unlink()

    assert openimages.read(tmp_path).classes == ("Cat", "Dog", "/m/0zzzz")


def test_v5_has_boxes_with_flags(tmp_path):
    found = rows(
        openimages.read(layout.v5(tmp_path)), ("image", "label", "present", "kind", "x", "y", "w", "h", "flags")
    )

    assert found == [
        (FIRST, "Cat", True, "box", 0.5, 0.75, 0.5, 0.5, ("group", "occluded")),
        (FIRST, "Cat", True, "image", None, None, None, None, None),
        (FIRST, "Dog", False, "image", None, None, None, None, None),
        ("train/000004f4400f6ec5.jpg", "Toy, small", True, "box", 0.25, 0.125, 0.5, 0.25, None),
    ]


def test_the_hierarchy_has_several_parents_and_no_parts(tmp_path):
    layout.v5(tmp_path)

    assert openimages.read(tmp_path).hierarchy == (("Cat", "Animal"), ("Dog", "Animal"), ("Cat", "Pet"))
    assert openimages.read(tmp_path, hierarchy=False).hierarchy == ()


def test_labels_only(tmp_path):
    assert openimages.read(layout.v5(tmp_path), locations="none").names() == [FIRST]


def test_v6_classes_of_the_same_name_get_their_id(tmp_path):
    assert openimages.read(layout.v6(tmp_path)).classes == ("Pet (/m/01yrx)", "Dog", "Pet (/m/068hy)")


def test_one_of_two_editions_must_be_chosen(tmp_path):
    layout.v5(layout.v6(tmp_path))

    assert message(tmp_path) == "FOLDER has v5 and v6 of Open Images; choose one with edition=."
    assert openimages.read(tmp_path, edition="v6").name == "openimages-v6"


def test_machine_labels_are_refused(tmp_path):
    layout.v5(tmp_path)
    layout.text(
        tmp_path / "train-annotations-human-imagelabels-boxable.csv",
        layout.LABELS,
        f"000002b66c9c498e,machine,{layout.CAT},0.5",
    )

    assert "label /m/01yrx of image 000002b66c9c498e has a confidence of 0.5" in message(tmp_path)


def test_a_path_is_not_an_id(tmp_path):
    layout.v5(tmp_path)
    layout.text(
        tmp_path / "train-annotations-human-imagelabels-boxable.csv", layout.LABELS, f"../secret,human,{layout.CAT},1"
    )

    assert message(tmp_path) == "'../secret' is not the id of an image of Open Images; correct the file."


def test_a_box_that_ends_before_it_begins_is_named(tmp_path):
    path = layout.v5(tmp_path) / "train-annotations-bbox.csv"
    path.write_text(path.read_text().replace("0.25,0.75", "0.75,0.25"))

    assert message(tmp_path).endswith("a box of /m/01yrx in image 000002b66c9c498e ends before it begins.")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("ImageID,Source,LabelName\na,b,c", "cannot be read: "),
        ("ImageID,Source,LabelName,Confidence\na,b,c,d", "cannot be read: "),
        ("", "is empty"),
        ("a,b\n1", "cannot be read: "),
        ("ImageID,Source,LabelName,Confidence,Confidence\na,b,c,0,1", "has two columns 'Confidence'"),
    ],
)
def test_a_bad_table_is_named(tmp_path, content, problem):
    layout.v5(tmp_path)
    layout.text(tmp_path / "train-annotations-human-imagelabels-boxable.csv", content)

    assert message(tmp_path).startswith(f"FOLDER/train-annotations-human-imagelabels-boxable.csv {problem}")


@pytest.mark.parametrize(("content", "problem"), [("{", "is not valid JSON"), ("[1]", "has a node that is not")])
def test_a_bad_hierarchy_is_named(tmp_path, content, problem):
    (layout.v5(tmp_path) / "bbox_labels_600_hierarchy.json").write_text(content)

    assert f"FOLDER/bbox_labels_600_hierarchy.json {problem}" in message(tmp_path)


def test_a_folder_without_files_is_refused(tmp_path):
    assert message(tmp_path, edition="v6").startswith("FOLDER has no labels of Open Images v6")


def test_descriptions_in_another_encoding_are_refused(tmp_path):
    layout.v5(tmp_path)
    (tmp_path / "class-descriptions-boxable.csv").write_bytes(b"/m/01,Caf\xe9\n")

    assert "class-descriptions-boxable.csv, line 1: found bytes that are not UTF-8" in message(tmp_path)


@settings(max_examples=20, deadline=None)
@given(arbitrary.datasets(name="{folder}/{number:016x}.jpg", flags=FLAGS, states=(1, 0, -1), unlocated={}, sizes=False))
def test_everything_in_the_files_is_read(dataset):
    with tempfile.TemporaryDirectory() as folder:
        layout.write_dataset(Path(folder), dataset)

        assert same(openimages.read(folder, images="all"), dataset)


@pytest.mark.parametrize("name", ["id", "LabelName"])
def test_a_class_may_be_called_like_a_column(tmp_path, name):
    images = from_records([{"image": "train/1.jpg", "split": "train"}], IMAGES_SCHEMA)
    rows = from_records([{"image": "train/1.jpg", "label": name, "present": True, "source": "test"}])
    layout.write_dataset(tmp_path, Dataset("some", ".", (name, "cat"), images, rows))

    assert states(openimages.read(tmp_path)) == {"train/1.jpg": {name: 1, "cat": -1}}
