from __future__ import annotations

import gc
from functools import partial
from pathlib import Path

import pytest

from tagfill.dataset.tables import RowSpool
from tagfill.errors import DatasetError
from tagfill.formats import dataset_builder
from tagfill.formats.dataset_builder import DatasetBuilder


def builder(classes=("bird", "cat", "dog")):
    return DatasetBuilder("pets", Path("photos"), classes, "vet")


def states(dataset):
    return {(row["image"], row["label"]): row["present"] for row in dataset.rows().to_pylist()}


def test_images_keep_their_order_and_rows_get_their_source():
    rows = builder()
    rows.add_image("b.jpg", "train", 640, 480)
    rows.add_image("a.jpg", "val")
    rows.add_row("a.jpg", "cat", True, source="owner")
    rows.add_row("b.jpg", "dog", None, kind="box", x=0.5, y=0.5, w=0.1, h=0.2, flags=["difficult"])

    dataset = rows.build()

    assert dataset.images.to_pylist() == [
        {"image": "b.jpg", "split": "train", "width": 640, "height": 480},
        {"image": "a.jpg", "split": "val", "width": None, "height": None},
    ]
    assert [(row["kind"], row["source"], row["flags"]) for row in dataset.rows().to_pylist()] == [
        ("image", "owner", None),
        ("box", "vet", ["difficult"]),
    ]


def test_absences_are_all_other_classes():
    rows = builder()
    rows.add_image("a.jpg", "train")
    rows.mark_rest_absent("a.jpg", ["cat"])

    assert states(rows.build()) == {("a.jpg", "bird"): False, ("a.jpg", "dog"): False}


def test_columns_and_single_rows_mix():
    rows = builder()
    rows.add_images({"image": ["a.jpg", "b.jpg"], "split": ["train", "val"]})
    rows.add_image("c.jpg", "val")
    rows.add_rows({"image": ["a.jpg", "b.jpg"], "label": ["cat", "dog"], "present": [True, False]})
    rows.add_row("c.jpg", "bird", True)

    dataset = rows.build()

    assert dataset.names() == ["a.jpg", "b.jpg", "c.jpg"]
    assert states(dataset) == {("a.jpg", "cat"): True, ("b.jpg", "dog"): False, ("c.jpg", "bird"): True}


def test_many_rows_go_to_a_file_that_lives_as_long_as_the_dataset(monkeypatch):
    monkeypatch.setattr(dataset_builder, "RowSpool", partial(RowSpool, in_memory=0))
    monkeypatch.setattr(dataset_builder, "_BUFFERED_ABSENCES", 4)
    rows = builder()
    for number in range(5):
        rows.add_image(f"{number}.jpg", "train")
        rows.add_row(f"{number}.jpg", "cat", True)
        rows.mark_rest_absent(f"{number}.jpg", ["cat"])

    dataset = rows.build()
    spool = Path(dataset.annotations)

    assert spool.is_file()
    assert dataset.labels().dense().tolist() == [[0, 1, 0]] * 5
    del rows, dataset
    gc.collect()
    assert not spool.exists()


def test_an_image_is_added_once():
    rows = builder()
    rows.add_image("a.jpg", "train")
    rows.add_image("a.jpg", "val")

    with pytest.raises(DatasetError, match=r"pets: image 'a\.jpg' is listed twice"):
        rows.build()


def test_class_names_are_distinct():
    with pytest.raises(DatasetError, match="class 'cat' is listed twice"):
        builder(("cat", "dog", "cat"))
