"""NUS-WIDE in its three layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.datasets import PLAIN_NAMES, known_labels, label_states, quick, splits
from formats.layouts import nus_wide as layout
from formats.layouts.nus_wide import CONCEPTS, write_arrays, write_official
from tagfill.errors import DatasetError
from tagfill.formats import nus_wide

TRAIN = {"actor/0001_2124494179.jpg": (1, 0, 1), "actor/0002_174174086.jpg": (0, 0, 0)}
TEST = {"zebra/0003_1.jpg": (0, 1, 0)}
COMPLETE = {
    "actor/0001_2124494179.jpg": {"airport": True, "animal": False, "beach": True},
    "actor/0002_174174086.jpg": {"airport": False, "animal": False, "beach": False},
    "zebra/0003_1.jpg": {"airport": False, "animal": True, "beach": False},
}


def test_official_files(tmp_path):
    data = nus_wide.read(write_official(tmp_path, {"Train": TRAIN, "Test": TEST}))
    assert data.classes == CONCEPTS
    assert known_labels(data) == COMPLETE
    assert list(splits(data).values()) == ["train", "train", "val"]
    assert data.root == tmp_path / "Flickr"


def test_released_arrays(tmp_path):
    data = nus_wide.read(write_arrays(tmp_path, {"train": TRAIN, "val": TEST}), held_out="test")
    assert known_labels(data) == COMPLETE
    assert list(splits(data).values()) == ["train", "train", "test"]


def test_another_layout_is_refused_if_one_is_named(tmp_path):
    folder = write_official(tmp_path, {"Train": TRAIN, "Test": TEST})
    assert nus_wide.read(folder, layout="official").classes == CONCEPTS
    with pytest.raises(DatasetError, match=r"not NUS-WIDE in the layout 'arrays': there is no formatted_train_images"):
        nus_wide.read(folder, layout="arrays")


def test_zero_may_be_unknown(tmp_path):
    data = nus_wide.read(write_arrays(tmp_path, {"train": TRAIN, "val": TEST}), absent_means="unknown")
    assert known_labels(data)["actor/0001_2124494179.jpg"] == {"airport": True, "beach": True}


@pytest.mark.parametrize("text", ["a.jpg 0 2\nb.jpg\n", "a.jpg,0 2\r\nb.jpg,\r\n"])
def test_list_files(tmp_path, text):
    (tmp_path / "train.txt").write_bytes(text.encode())
    with pytest.raises(DatasetError, match=r"2 of 6 .* the other 4 become unknown"):
        nus_wide.read(tmp_path / "train.txt", classes=CONCEPTS)
    data = nus_wide.read(tmp_path / "train.txt", classes=CONCEPTS, absent_means="absent", split="test")
    assert known_labels(data) == {
        "a.jpg": {"airport": True, "animal": False, "beach": True},
        "b.jpg": {"airport": False, "animal": False, "beach": False},
    }
    assert set(splits(data).values()) == {"test"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg 0\nb.jpg 3\n", r"line 2: found index 3; the 3 concepts are 0…2"),
        ("a.jpg 0 1 0\n", r"line 1: found the same index twice; .* not a column of 0 and 1"),
        ("a.jpg x\n", r"line 1: found 'x' as the index of a concept"),
    ],
)
def test_bad_lists_are_named(tmp_path, text, message):
    (tmp_path / "train.txt").write_text(text)
    with pytest.raises(DatasetError, match=message):
        nus_wide.read(tmp_path / "train.txt", classes=CONCEPTS, absent_means="unknown")


def test_unnamed_concepts_are_asked_for(tmp_path):
    write_arrays(tmp_path, {"train": TRAIN, "val": TEST})
    (tmp_path / "Concepts81.txt").unlink()
    with pytest.raises(DatasetError, match=r"put Concepts81\.txt beside it or give classes="):
        nus_wide.read(tmp_path)


def test_bad_label_files_are_named(tmp_path):
    write_official(tmp_path, {"Train": TRAIN, "Test": TEST})
    path = tmp_path / "Groundtruth" / "TrainTestLabels" / "Labels_animal_Train.txt"
    path.write_text("1\nyes\n")
    with pytest.raises(DatasetError, match=r"Labels_animal_Train\.txt, line 2: found 'yes'; 0 or 1 is expected"):
        nus_wide.read(tmp_path)
    path.write_text("1\n")
    with pytest.raises(DatasetError, match=r"has 1 lines, but TrainImagelist\.txt lists 2 images"):
        nus_wide.read(tmp_path)
    path.unlink()
    (tmp_path / "ConceptsList").mkdir()
    (tmp_path / "ConceptsList" / "Concepts81.txt").write_text("\n".join(CONCEPTS))
    with pytest.raises(DatasetError, match=r"Labels_animal_Train\.txt is missing"):
        nus_wide.read(tmp_path)


def test_bad_arrays_are_named(tmp_path):
    write_arrays(tmp_path, {"train": TRAIN, "val": TEST})
    np.save(tmp_path / "formatted_train_labels.npy", np.array([[1, 0, 1], [0, -1, 0]]))
    with pytest.raises(DatasetError, match=r"formatted_train_labels\.npy, row 1, column 1: found -1"):
        nus_wide.read(tmp_path)
    np.save(tmp_path / "formatted_train_labels.npy", np.zeros((2, 5)))
    with pytest.raises(DatasetError, match=r"of shape \(2, 5\), but numbers of 2 images × 3 concepts"):
        nus_wide.read(tmp_path)
    np.save(tmp_path / "formatted_train_images.npy", np.array(["a.jpg", None], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match="arrays of Python objects are not read"):
        nus_wide.read(tmp_path)


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"neither ImageList/ nor formatted_train_images\.npy"):
        nus_wide.read(tmp_path)


@pytest.mark.parametrize(
    ("write", "words"),
    [(write_official, {"train": "Train", "val": "Test"}), (write_arrays, {"train": "train", "val": "val"})],
    ids=["official", "arrays"],
)
@given(data=label_states(states=(True, False), names=PLAIN_NAMES, splits=("train", "val")))
@quick
def test_every_label_is_read(tmp_path_factory, write, words, data):
    folder = write(tmp_path_factory.mktemp("nus"), layout.parts_of(data, words), data.classes)
    back = nus_wide.read(folder)
    assert back.classes == data.classes
    assert known_labels(back) == known_labels(data)
    assert splits(back) == splits(data)


@given(data=st.data(), meaning=st.sampled_from(["absent", "unknown"]))
@quick
def test_every_line_of_a_list_is_read(tmp_path, data, meaning):
    states = (True, False) if meaning == "absent" else (True, "unknown")
    first = data.draw(label_states(states=states, names=PLAIN_NAMES, splits=("train",)))
    shown = {image: [label for label in first.classes if its.get(label)] for image, its in known_labels(first).items()}
    lines = [" ".join([image, *(str(first.classes.index(label)) for label in its)]) for image, its in shown.items()]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert known_labels(nus_wide.read(tmp_path / "a.txt", classes=first.classes, absent_means=meaning)) == known_labels(
        first
    )
