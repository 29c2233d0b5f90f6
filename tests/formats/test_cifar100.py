"""CIFAR-100, binary and Python version."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from formats.layouts.cifar100 import COARSE, FINE, pixels, python_2_pickle, write_binary, write_pickles
from formats.layouts.pictures import write_picture
from formats.states import dataset, said, splits
from tagfill.errors import DatasetError, ImageError
from tagfill.formats import cifar100

both_versions = pytest.mark.parametrize("write", [write_binary, write_pickles], ids=["binary", "Python"])


@both_versions
def test_classes_and_superclasses(tmp_path, write):
    data = cifar100.read(write(tmp_path / "cifar"), images_to=tmp_path / "out")
    assert data.classes == (*FINE, *COARSE)
    assert data.hierarchy == (
        ("apple", "fruit_and_vegetables"),
        ("aquarium_fish", "fish"),
        ("bear", "large_carnivores"),
    )
    decided = said(data)
    assert list(decided) == [f"images/train/0000{number}.png" for number in range(3)] + ["images/test/00000.png"]
    shown = [[label for label, state in states.items() if state] for states in decided.values()]
    apple, bear = ["apple", "fruit_and_vegetables"], ["bear", "large_carnivores"]
    assert shown == [apple, bear, apple, ["aquarium_fish", "fish"]]
    assert data.labels().complete()
    assert list(splits(data).values()) == ["train", "train", "train", "test"]


@both_versions
def test_pictures_are_the_pixels(tmp_path, write):
    data = cifar100.read(write(tmp_path / "cifar"), images_to=tmp_path / "out")
    flat = pixels(3, seed=0)[1]
    with Image.open(data.root / "images/train/00001.png") as image:
        picture = np.asarray(image)
    assert picture.shape == (32, 32, 3)
    assert picture[5, 7].tolist() == [flat[colour * 1024 + 5 * 32 + 7] for colour in range(3)]


def test_other_labels_may_be_unknown(tmp_path):
    folder = write_binary(tmp_path / "cifar")
    data = cifar100.read(folder, images_to=tmp_path / "out", absent_means="unknown", held_out="val")
    assert said(data)["images/val/00000.png"] == {"aquarium_fish": True, "fish": True}


def test_round_trip(tmp_path):
    folder = write_binary(tmp_path / "cifar")
    first = cifar100.read(folder, images_to=tmp_path / "pictures")
    cifar100.write(first, tmp_path / "again")
    for name in ("train.bin", "test.bin"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    back = cifar100.read(tmp_path / "again", images_to=tmp_path / "pictures")
    assert back.identities == first.identities
    assert back.hierarchy == first.hierarchy


def test_damaged_files_are_named(tmp_path):
    folder = write_binary(tmp_path / "cifar")
    whole = (folder / "train.bin").read_bytes()
    (folder / "train.bin").write_bytes(whole[:-1])
    with pytest.raises(DatasetError, match=r"train\.bin has 9,221 bytes, which are no whole records of 3,074"):
        cifar100.read(folder, images_to=tmp_path)
    (folder / "train.bin").write_bytes(b"\x09" + whole[1:])
    with pytest.raises(DatasetError, match=r"record 0: class 0 of superclass 9, but only 3 and 3 have names"):
        cifar100.read(folder, images_to=tmp_path)
    (folder / "train.bin").write_bytes(b"\x02" + whole[1:])
    with pytest.raises(DatasetError, match=r"record 2: class 0 is of superclass 1, but was of 2 before"):
        cifar100.read(folder, images_to=tmp_path)
    (folder / "test.bin").unlink()
    with pytest.raises(DatasetError, match=r"test\.bin is missing"):
        cifar100.read(folder, images_to=tmp_path)
    with pytest.raises(DatasetError, match=r"neither train\.bin nor train"):
        cifar100.read(tmp_path, images_to=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train", {"data": [1]}, r"no array 'data' of 3,072 bytes a picture"),
        ("train", {"data": pixels(2, 0), "fine_labels": [1]}, r"no list 'fine_labels' of 2 numbers"),
        ("meta", {"fine_label_names": "apple"}, r"no list 'fine_label_names'"),
    ],
)
def test_other_pickles_are_named(tmp_path, name, content, message):
    folder = write_pickles(tmp_path / "cifar")
    (folder / name).write_bytes(python_2_pickle(content))
    with pytest.raises(DatasetError, match=message):
        cifar100.read(folder, images_to=tmp_path)


def test_refusals_of_writing(tmp_path):
    classes, edges = ("cat", "dog", "pet"), (("cat", "pet"), ("dog", "pet"))
    write_picture(tmp_path / "a.png", (40, 32))

    def with_labels(**states):
        return dataset({"a.png": states}, classes, root=tmp_path).replace(hierarchy=edges)

    with pytest.raises(DatasetError, match="cannot say unknown, but 1 of 3"):
        cifar100.write(with_labels(cat=True, pet=True), tmp_path / "out")
    with pytest.raises(DatasetError, match=r"a.png shows cat, dog, pet; leave it out"):
        cifar100.write(with_labels(cat=True, dog=True, pet=True), tmp_path / "out")
    with pytest.raises(ImageError, match="40×32 pixels, but CIFAR-100 has 32×32"):
        cifar100.write(with_labels(cat=True, dog=False, pet=True), tmp_path / "out")
    with pytest.raises(DatasetError, match="this hierarchy is another"):
        cifar100.write(with_labels(cat=True, dog=True, pet=True).replace(hierarchy=(*edges, ("cat", "dog"))), tmp_path)
