"""Folders of images, one for each class."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.datasets import PLAIN_NAMES, dataset, known_labels, quick, splits
from formats.layouts.pictures import write_picture
from tagfill.errors import DatasetError, TagfillError
from tagfill.formats import folder


def write_pictures(root, *names):
    for name in names:
        write_picture(root / name)
    return root


def test_folders_are_classes(tmp_path):
    root = write_pictures(tmp_path, "cat/1.jpg", "dog/1.jpg", "dog/old/猫.PNG", ".cache/x.jpg", "dog/.thumb.jpg")
    (root / "cow").mkdir()
    (root / "dog" / "notes.txt").write_text("no image")
    data = folder.read(root, absent_means="unknown")
    assert data.classes == ("cat", "cow", "dog")
    assert known_labels(data) == {
        "cat/1.jpg": {"cat": True},
        "dog/1.jpg": {"dog": True},
        "dog/old/猫.PNG": {"dog": True},
    }
    assert set(splits(data).values()) == {"train"}


def test_other_labels_are_absent_on_request(tmp_path):
    root = write_pictures(tmp_path, "cat/1.jpg", "dog/2.jpg")
    data = folder.read(root, absent_means="absent")
    assert known_labels(data) == {"cat/1.jpg": {"cat": True, "dog": False}, "dog/2.jpg": {"cat": False, "dog": True}}


def test_reading_is_asked_for_with_counts(tmp_path):
    root = write_pictures(tmp_path, "cat/1.jpg", "dog/2.jpg", "dog/3.jpg")
    with pytest.raises(DatasetError, match=r"3 of 6 .* the other 3 become unknown"):
        folder.read(root)


def test_folders_for_splits(tmp_path):
    root = write_pictures(tmp_path, "valid/dog/1.jpg", "train/cat/1.jpg", "test/cat/2.jpg")
    data = folder.read(root, absent_means="unknown")
    assert splits(data) == {"train/cat/1.jpg": "train", "valid/dog/1.jpg": "val", "test/cat/2.jpg": "test"}
    assert data.classes == ("cat", "dog")


def test_same_name_may_be_the_same_image(tmp_path):
    root = write_pictures(tmp_path, "cat/1.jpg", "dog/1.jpg", "dog/2.jpg")
    data = folder.read(root, absent_means="unknown", same_name="same")
    assert known_labels(data) == {"cat/1.jpg": {"cat": True, "dog": True}, "dog/2.jpg": {"dog": True}}


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ({"a.jpg": {"x": True, "y": True}}, {}, r"a.jpg shows x, y; several='repeat'"),
        ({"a.jpg": {"x": False, "y": False}}, {}, r"a.jpg has no present label; none='skip'"),
        ({"a.jpg": {"x": True, "y": False}, "b.jpg": {"x": True}}, {}, r"1 are verified absent and 1 unknown"),
        ({"../a.jpg": {"x": True}}, {}, "not a path below the image root"),
        ({"x/a.jpg": {"x": True}, "a.jpg": {"x": True}}, {}, "would both become train/x/a.jpg"),
        ({"a.jpg": {"x": True}}, {"several": "maybe"}, "give one of refuse, repeat"),
        ({"a.jpg": {"x": True}}, {}, "a.jpg is missing"),
    ],
)
def test_refusals_of_writing(tmp_path, labels, options, message):
    with pytest.raises(TagfillError, match=message):
        folder.write(dataset(labels, ("x", "y"), root=tmp_path), tmp_path / "out", **options)


def test_class_that_is_no_folder_name(tmp_path):
    with pytest.raises(DatasetError, match="cannot be the name of a folder"):
        folder.write(dataset({"a.jpg": {"x/y": True}}, ("x/y",)), tmp_path)


def test_folder_without_classes(tmp_path):
    with pytest.raises(DatasetError, match="one folder per class"):
        folder.read(tmp_path, absent_means="unknown")


def test_several_labels_repeat_the_image(tmp_path):
    write_pictures(tmp_path, "a.jpg", "b.jpg")
    data = dataset({"a.jpg": {"x": True, "y": True}, "b.jpg": {}}, ("x", "y"), root=tmp_path)
    folder.write(data, tmp_path / "out", several="repeat", none="skip", images="link")
    back = folder.read(tmp_path / "out", absent_means="unknown", same_name="same")
    assert known_labels(back) == {"train/x/a.jpg": {"x": True, "y": True}}
    assert (tmp_path / "out/train/y/a.jpg").is_symlink()


@given(data=st.data(), meaning=st.sampled_from(["unknown", "absent"]))
@quick
def test_round_trip_keeps_paths(tmp_path_factory, data, meaning):
    root, target = tmp_path_factory.mktemp("from"), tmp_path_factory.mktemp("to")
    classes = sorted(data.draw(st.sets(PLAIN_NAMES, min_size=1, max_size=3)))
    images = data.draw(st.dictionaries(PLAIN_NAMES, st.sampled_from(classes), min_size=1, max_size=4))
    parts = {name: data.draw(st.sampled_from(["train", "val"])) for name in images}
    for name, label in images.items():
        write_picture(root / parts[name] / label / f"{name}.png")
    first = folder.read(root, absent_means=meaning)
    folder.write(first, target)
    back = folder.read(target, absent_means=meaning)
    assert known_labels(back) == known_labels(first)
    assert splits(back) == splits(first)
