"""CIFAR-100, whose binary version is read."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from formats.datasets import dataset, known_labels, splits
from formats.layouts import cifar100 as layout
from formats.layouts.cifar100 import COARSE, FINE, pixels, write_binary
from formats.layouts.pictures import write_picture
from tagfill.errors import DatasetError
from tagfill.formats import cifar100


def test_classes_and_superclasses(tmp_path):
    data = cifar100.read(write_binary(tmp_path / "cifar"), images_to=tmp_path / "out")
    assert data.classes == (*FINE, *COARSE)
    assert data.hierarchy == (
        ("apple", "fruit_and_vegetables"),
        ("aquarium_fish", "fish"),
        ("bear", "large_carnivores"),
    )
    decided = known_labels(data)
    assert list(decided) == [f"images/train/0000{number}.png" for number in range(3)] + ["images/test/00000.png"]
    shown = [[label for label, state in states.items() if state] for states in decided.values()]
    apple, bear = ["apple", "fruit_and_vegetables"], ["bear", "large_carnivores"]
    assert shown == [apple, bear, apple, ["aquarium_fish", "fish"]]
    assert data.labels().complete()
    assert list(splits(data).values()) == ["train", "train", "train", "test"]


def test_images_are_the_pixels(tmp_path):
    data = cifar100.read(write_binary(tmp_path / "cifar"), images_to=tmp_path / "out")
    flat = pixels(3, seed=0)[1]
    with Image.open(data.root / "images/train/00001.png") as image:
        picture = np.asarray(image)
    assert picture.shape == (32, 32, 3)
    assert picture[5, 7].tolist() == [flat[color * 1024 + 5 * 32 + 7] for color in range(3)]


def test_other_labels_may_be_unknown(tmp_path):
    folder = write_binary(tmp_path / "cifar")
    data = cifar100.read(folder, images_to=tmp_path / "out", absent_means="unknown", held_out="val")
    assert known_labels(data)["images/val/00000.png"] == {"aquarium_fish": True, "fish": True}


def test_damaged_files_are_named(tmp_path):
    folder = write_binary(tmp_path / "cifar")
    whole = (folder / "train.bin").read_bytes()
    (folder / "train.bin").write_bytes(whole[:-1])
    with pytest.raises(
        DatasetError, match=r"train\.bin has 9,221 bytes, which is not a multiple of the 3,074 bytes of a record"
    ):
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
    with pytest.raises(DatasetError, match=r"has no train\.bin; give the unpacked folder cifar-100-binary"):
        cifar100.read(tmp_path, images_to=tmp_path)


def test_the_python_version_is_refused_unopened(tmp_path):
    (tmp_path / "train").write_bytes(b"cposix\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(DatasetError, match=r"Python version of CIFAR-100, .*download the binary version"):
        cifar100.read(tmp_path, images_to=tmp_path)


def test_every_image_is_read(tmp_path):
    classes, edges = ("cat", "dog", "rose", "pet", "plant"), (("cat", "pet"), ("dog", "pet"), ("rose", "plant"))
    shown = {f"{number}.png": classes[number % 3] for number in range(7)}
    for number, image in enumerate(shown):
        write_picture(tmp_path / image, (32, 32), (number, 2 * number, 255 - number))
    labels = {image: {label: True} for image, label in shown.items()}
    parts = dict.fromkeys(list(shown)[5:], "test")
    first = dataset(labels, classes, root=tmp_path, splits=parts).replace(hierarchy=edges)
    layout.write_dataset(tmp_path / "cifar", first)

    data = cifar100.read(tmp_path / "cifar", images_to=tmp_path / "out")

    assert (data.classes, set(data.hierarchy)) == (classes, set(edges))
    assert [next(label for label, state in states.items() if state) for states in known_labels(data).values()] == [
        *shown.values()
    ]
    for image, original in zip(data.names(), shown, strict=True):
        with Image.open(data.root / image) as read, Image.open(tmp_path / original) as written:
            assert np.array_equal(np.asarray(read), np.asarray(written))
