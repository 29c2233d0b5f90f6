"""ImageNet and ReaL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.datasets import PLAIN_NAMES, dataset, known_labels, quick, splits
from formats.layouts import imagenet as layout
from formats.layouts.imagenet import FISH, HEN, SHARK, write_imagenet
from tagfill.errors import DatasetError
from tagfill.formats import imagenet

REAL = [[2], [0, 2], [], [1]]


def by_number(data):
    """What is said of the validation images, in the order of their numbers."""
    decided = {name.rsplit("/")[-1]: states for name, states in known_labels(data).items() if name.startswith("val/")}
    return [decided[name] for name in sorted(decided)]


def test_a_folder_is_one_label(tmp_path):
    data = imagenet.read(write_imagenet(tmp_path), absent_means="unknown")
    assert data.classes == (FISH, SHARK, HEN)
    assert known_labels(data) == {
        f"train/{FISH}/{FISH}_18.JPEG": {FISH: True},
        f"train/{FISH}/{FISH}_36.JPEG": {FISH: True},
        f"train/{SHARK}/{SHARK}_2.JPEG": {SHARK: True},
        f"val/{FISH}/ILSVRC2012_val_00000002.JPEG": {FISH: True},
        f"val/{FISH}/ILSVRC2012_val_00000004.JPEG": {FISH: True},
        f"val/{SHARK}/ILSVRC2012_val_00000003.JPEG": {SHARK: True},
        f"val/{HEN}/ILSVRC2012_val_00000001.JPEG": {HEN: True},
    }
    assert list(splits(data).values()) == ["train"] * 3 + ["val"] * 4


@pytest.mark.parametrize("flat", [False, True], ids=["class folders", "flat"])
def test_real_labels_are_complete_and_in_the_order_of_file_names(tmp_path, flat):
    data = imagenet.read(write_imagenet(tmp_path, REAL, flat=flat), absent_means="unknown")
    assert by_number(data) == [
        {FISH: False, SHARK: False, HEN: True},
        {FISH: True, SHARK: False, HEN: True},
        {},
        {FISH: False, SHARK: True, HEN: False},
    ]
    assert known_labels(data)[f"train/{SHARK}/{SHARK}_2.JPEG"] == {SHARK: True}


def test_flat_images_without_real_are_unlabelled(tmp_path):
    assert by_number(imagenet.read(write_imagenet(tmp_path, flat=True), absent_means="absent")) == [{}] * 4


def test_reading_is_asked_for_with_counts(tmp_path):
    write_imagenet(tmp_path, REAL)
    with pytest.raises(DatasetError, match=r"3 of 9 .* the other 6 become unknown"):
        imagenet.read(tmp_path)
    data = imagenet.read(tmp_path, absent_means="absent")
    assert known_labels(data)[f"train/{SHARK}/{SHARK}_2.JPEG"] == {FISH: False, SHARK: True, HEN: False}


def test_validation_images_alone(tmp_path):
    write_imagenet(tmp_path, flat=True)
    (tmp_path / "train").rename(tmp_path / "elsewhere")
    (tmp_path / "labels.json").write_text("[[0], [], [], []]")
    data = imagenet.read(tmp_path, real=tmp_path / "labels.json", classes=[FISH, SHARK])
    assert by_number(data) == [{FISH: True, SHARK: False}, {}, {}, {}]
    with pytest.raises(DatasetError, match="no folder for a class"):
        imagenet.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[0]]", r"real\.json holds a list of 1, but there are 4 images in val/"),
        ("{}", r"holds dict, but there are 4 images"),
        ("[[0], [3], [], []]", r"entry 1: found \[3\]; distinct numbers of the 3 classes"),
        ("[[0], [1, 1], [], []]", r"entry 1: found \[1, 1\]"),
        ("[[0], 1, [], []]", r"entry 1: found 1"),
        ("[[0]", "is not valid JSON"),
    ],
)
def test_bad_real_files_are_named(tmp_path, text, message):
    write_imagenet(tmp_path)
    (tmp_path / "real.json").write_text(text)
    with pytest.raises(DatasetError, match=message):
        imagenet.read(tmp_path, absent_means="unknown")


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="has no images in train/ or val/"):
        imagenet.read(tmp_path)
    with pytest.raises(DatasetError, match=f"lies in '{SHARK}', which is not among the classes given"):
        imagenet.read(write_imagenet(tmp_path), classes=[FISH, HEN])


@given(data=st.data(), meaning=st.sampled_from(["unknown", "absent"]))
@quick
def test_every_label_is_read(tmp_path_factory, data, meaning):
    classes = sorted(data.draw(st.sets(PLAIN_NAMES, min_size=1, max_size=3)))
    labels, parts = {}, {}
    for name in data.draw(st.lists(PLAIN_NAMES, min_size=1, max_size=4, unique=True)):
        if data.draw(st.booleans()):
            label = data.draw(st.sampled_from(classes))
            image, shown = f"train/{label}/{name}.JPEG", {label}
            parts[image] = "train"
        else:
            image, shown = f"val/{name}.JPEG", data.draw(st.sets(st.sampled_from(classes)))
            parts[image] = "val"
        exhaustive = bool(shown) if parts[image] == "val" else meaning == "absent"
        labels[image] = {label: label in shown for label in classes if exhaustive or label in shown}
    first = dataset(labels, tuple(classes), splits=parts)
    folder = layout.write_dataset(tmp_path_factory.mktemp("imagenet"), first)
    back = imagenet.read(folder, absent_means=meaning)
    assert back.classes == first.classes
    assert known_labels(back) == known_labels(first)
    assert splits(back) == splits(first)
