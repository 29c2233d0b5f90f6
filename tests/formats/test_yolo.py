"""YOLO datasets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.datasets import PLAIN_NAMES, dataset, known_labels, quick, rows, splits
from formats.layouts.pictures import write_picture
from formats.layouts.yolo import NAMES_AS_DICT, NAMES_AS_LIST, write_yolo
from reference import rle
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.errors import DatasetError
from tagfill.formats import yolo


@pytest.mark.parametrize("names", [NAMES_AS_LIST, NAMES_AS_DICT], ids=["list", "dict"])
@pytest.mark.parametrize("splits_above", [False, True], ids=["images/train", "train/images"])
def test_boxes_empty_files_and_missing_files(tmp_path, names, splits_above):
    labels = {"train/1": "\ufeff1 0.5 0.25 0.5 0.125\r\n1 0.75 0.5 0.25 1\r\n", "train/2": "", "valid/3": None}
    data = yolo.read(write_yolo(tmp_path, labels, names=names, splits_above=splits_above))
    one, two, three = data.names()
    assert known_labels(data) == {one: {"cat": False, "no": True}, two: {"cat": False, "no": False}, three: {}}
    assert list(splits(data).values()) == ["train", "train", "val"]
    assert (data.root / one).is_file()
    assert rows(data, "image", "label", "present", "kind", "x", "y", "w", "h")[:2] == [
        (one, "no", True, "box", 0.5, 0.25, 0.5, 0.125),
        (one, "no", True, "box", 0.75, 0.5, 0.25, 1.0),
    ]


def test_classes_without_a_box_stay_unknown_on_request(tmp_path):
    data = yolo.read(write_yolo(tmp_path, {"train/1": "1 .5 .5 .5 .5", "train/2": ""}), absent_means="unknown")
    assert list(known_labels(data).values()) == [{"no": True}, {"cat": False, "no": False}]


def test_split_as_a_list_of_files(tmp_path):
    root = write_yolo(tmp_path, {"train/1": "", "train/2": "0 .5 .5 .5 .5"})
    (root / "some.txt").write_text("./images/train/2.jpg\n")
    (root / "data.yaml").write_text("train: some.txt\n" + NAMES_AS_LIST)
    assert known_labels(yolo.read(root / "data.yaml")) == {"images/train/2.jpg": {"cat": True, "no": False}}


def test_polygons_become_masks_or_boxes(tmp_path):
    root = write_yolo(tmp_path, {"train/1": "0 0.25 0 0.75 0 0.75 0.5 0.25 0.5\n"})  # of an 8×6 picture
    (row,) = yolo.read(root, polygons="mask", absent_means="unknown").rows().to_pylist()
    expected = [[1 if y < 3 and 2 <= x < 6 else 0 for x in range(8)] for y in range(6)]
    assert rle.decode(row["rle"], row["rle_height"], row["rle_width"]) == expected
    assert (row["kind"], row["x"], row["y"], row["w"], row["h"]) == ("mask", 0.5, 0.25, 0.5, 0.5)
    assert rows(yolo.read(root, polygons="box", absent_means="unknown"), "kind", "w") == [("box", 0.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 .5 .5 .5\n", r"1\.txt, line 1: found 3 numbers after the class; a box has four"),
        ("0 .5 .5 .5 .5\n2 .5 .5 .5 .5\n", r"line 2: found class 2, but data.yaml names 2"),
        ("0.5 .5 .5 .5 .5\n", r"line 1: found class 0.5"),
        ("0 320 240 64 64\n", r"not within 0 and 1; divide pixels by the width and height"),
        ("0 nan .5 .5 .5\n", r"not within 0 and 1"),
        ("cat .5 .5 .5 .5\n", r"numbers are expected"),
        ("0 .1 .1 .2 .1 .2 .2\n", r"6 numbers .*polygons='mask'"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, message):
    with pytest.raises(DatasetError, match=message):
        yolo.read(write_yolo(tmp_path, {"train/1": text}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: [cat, no]\n", "class name False is not text; quote names"),
        ("train: x\n", "has no 'names'"),
        ("names: {0: a, 2: b}\n", "without gaps"),
        ("names: [a]\nnc: 2\n", "'nc' is 2, but 1 classes are named"),
        ("names: [a]\ntrain: nowhere\n", "names 'nowhere', but there is no such file or folder"),
        ("names: [a\n", "is not valid YAML"),
        ("just text", "not a description"),
    ],
)
def test_bad_descriptions_are_named(tmp_path, text, message):
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DatasetError, match=message):
        yolo.read(tmp_path)


def test_missing_description(tmp_path):
    with pytest.raises(DatasetError, match=r"data\.yaml is missing; it should hold the names"):
        yolo.read(tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"a.jpg": {"x": True, "y": False}}, r"needs a box for every present label, but 'x' of a.jpg has none"),
        ({"a.jpg": {"x": False}}, r"1 images have absent labels and 1 have unknown ones"),
        ({"a.jpg": {}, "a.png": {}}, r"a.jpg and a.png would share labels/train/a.txt"),
    ],
)
def test_refusals_of_writing(tmp_path, labels, message):
    with pytest.raises(DatasetError, match=message):
        yolo.write(dataset(labels, ("x", "y"), root=tmp_path), tmp_path / "out", images="none")


def test_labels_without_a_box(tmp_path):
    write_picture(tmp_path / "a.jpg")
    data = dataset({"a.jpg": {"x": True, "y": False}}, ("x", "y"), root=tmp_path)
    yolo.write(data, tmp_path / "whole", without_box="whole")
    assert (tmp_path / "whole/labels/train/a.txt").read_text() == "0 0.5 0.5 1 1\n"
    yolo.write(data, tmp_path / "drop", without_box="drop")
    assert list(known_labels(yolo.read(tmp_path / "drop")).values()) == [{}]


SIDE = st.floats(0, 1, width=32)


@st.composite
def boxed(draw, absent):
    """Images with boxes, empty ones and unlabelled ones; what has no box is absent, or unknown."""
    classes = tuple(draw(st.lists(PLAIN_NAMES, min_size=1, max_size=3, unique=True)))
    names = draw(st.lists(PLAIN_NAMES, min_size=1, max_size=3, unique=True))
    images, found = [], []
    for name in names:
        part = draw(st.sampled_from(["train", "val"]))
        image = f"images/{part}/{name}.jpg"
        images.append({"image": image, "split": part})
        kind = draw(st.sampled_from(["boxes", "empty", "unlabelled"]))
        shown = draw(st.lists(st.sampled_from(classes), min_size=1, max_size=3)) if kind == "boxes" else []
        for label in shown:
            place = {side: draw(SIDE) for side in "xywh"}
            found.append({"image": image, "label": label, "present": True, "kind": "box", **place})
        if kind == "empty" or (kind == "boxes" and absent):
            absences = [label for label in classes if label not in shown]
            found += [{"image": image, "label": label, "present": False} for label in absences]
    return classes, from_records(images, IMAGES_SCHEMA), from_records(found)


@pytest.mark.parametrize("meaning", ["absent", "unknown"])
@given(data=st.data())
@quick
def test_round_trip(tmp_path_factory, meaning, data):
    classes, images, found = data.draw(boxed(meaning == "absent"))
    root, target = tmp_path_factory.mktemp("from"), tmp_path_factory.mktemp("to")
    first = Dataset("test", root, classes, images, found)
    for image in first.names():
        write_picture(root / image)
    yolo.write(first, target, images="link")
    back = yolo.read(target, absent_means=meaning)
    assert back.classes == first.classes
    assert known_labels(back) == known_labels(first)
    assert splits(back) == splits(first)
    columns = ("image", "label", "present", "kind", "x", "y", "w", "h")
    assert sorted(rows(back, *columns), key=repr) == sorted(rows(first, *columns), key=repr)
