"""A dataset in a notebook: its images one by one, its displays, and data frames."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pandas
import pytest
from PIL import Image

from dataset.cases import dataset, image, row, varied
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, ImageError, TagfillError, TagfillWarning

ROWS = (
    row("cat"),
    row("dog", False),
    row("dog", image="b.jpg"),
    row("animal", None, image="b.jpg"),
    row("animal", image="c.jpg"),
)
CLASSES = ("cat", "dog", "animal")


@pytest.fixture
def small(tmp_path):
    for number, name in enumerate("ab"):
        Image.new("RGB", (40, 20), (50 * number, 100, 150)).save(tmp_path / f"{name}.jpg")
    return dataset(*ROWS, classes=CLASSES).replace(root=tmp_path)


def test_images_by_position_slice_and_loop(small):
    first = small[0]
    assert (first.image, first.split, first.path) == ("a.jpg", "train", small.root / "a.jpg")
    assert (first.tags, first.absent, first.labels) == (("cat",), ("dog",), {"cat": True, "dog": False})
    assert small[-1] == small[np.int64(2)] == small[2]
    assert small[2].split == "val"
    assert [record.image for record in small[::-2]] == ["c.jpg", "a.jpg"]
    assert list(small) == small[:]
    assert small[1].tags == ("dog",)  # "cannot tell" is neither present nor absent
    with pytest.raises(IndexError, match="no image 3"):
        small[3]


def test_a_loop_goes_over_a_dataset_of_several_chunks_once():
    large = dataset(images=[image(f"{number:03}.jpg") for number in range(600)])
    names = [record.image for record in large]
    assert len(names) == 600
    assert all(one < other for one, other in pairwise(names))


def test_an_image_opens_or_says_why_not(small):
    assert small[0].open().size == (40, 20)
    with pytest.raises(ImageError, match=r"c\.jpg"):
        small[2].open()
    assert small.replace(root="https://host/photos/")[0].path == "https://host/photos/a.jpg"


def test_texts_are_short(small):
    assert repr(small) == f"<Dataset small: 3 images (train 2, val 1), 3 classes, images in {small.root}>"
    assert repr(small[0]) == "<a.jpg (train), tags: cat, 1 absent>"


def test_html_has_counts_photos_and_reasons(small):
    html = small._repr_html_()
    assert html.count("data:image/jpeg") == 2
    assert "no such file" in html  # c.jpg
    for text in ("train", "val", "3 images", "3 classes", "cat", "animal", "33.3%"):
        assert text in html
    assert "data:image/jpeg" in small[0]._repr_html_()


def test_html_of_any_dataset_is_shown(tmp_path):
    assert "say &quot;hi&quot;" in varied()._repr_html_()
    assert "0 images" in dataset(images=[])._repr_html_()
    contradicting = dataset(row("cat"), row("cat", False))
    assert "Cannot be shown in full" in contradicting._repr_html_()
    saved = dataset(*ROWS, classes=CLASSES).save(tmp_path / "saved")
    saved.annotations.unlink()
    assert "Cannot be shown in full" in saved._repr_html_()


def test_many_annotations_are_not_counted_for_a_display(small, monkeypatch):
    monkeypatch.setattr("tagfill.dataset.notebook._MANY_ROWS", 2)
    assert "data:image" not in small._repr_html_()
    small.labels()
    assert "data:image" in small._repr_html_()


def test_show_is_a_picture_in_a_script(small):
    assert small.show("train", count=2, columns=2).width > small.show("train", count=2, columns=1).width
    assert small[0].show(side=100).height > 100
    with pytest.raises(TagfillError, match="above 0"):
        small.show(count=0)


def test_a_data_frame_and_back(small):
    frame = small.to_pandas()
    assert frame.to_dict("list") == {
        "image": ["a.jpg", "b.jpg", "c.jpg"],
        "split": ["train", "train", "val"],
        "tags": [["cat"], ["dog"], ["animal"]],
        "complete": [False, False, False],
    }
    back = Dataset.from_pandas(frame[::-1], name="back")  # an index without a name is no column
    assert (back.name, back.names()) == ("back", ["c.jpg", "b.jpg", "a.jpg"])
    assert [record.tags for record in back] == [("animal",), ("dog",), ("cat",)]
    wide = small.to_pandas("train", per_class=True)
    assert wide["dog"].tolist() == [0, 1]
    assert wide["animal"].isna().all()
    again = Dataset.from_pandas(wide, class_columns=CLASSES)
    assert again.labels().dense().tolist() == small.labels("train").dense().tolist()
    with pytest.raises(DatasetError, match="'split' has the name of another column"):
        dataset(classes=("split",)).to_pandas(per_class=True)


def test_polars_data_frames_have_the_same_columns_and_build_the_same_dataset(small):
    frame = small.to_polars()
    assert frame.to_dicts() == small.to_pandas().to_dict("records")
    back = Dataset.from_polars(frame.reverse(), name="back")
    assert sorted(back.names()) == sorted(small.names())
    assert sorted(back.classes) == sorted(small.classes)
    wide = small.to_polars("train", per_class=True)
    expected = small.labels("train").dense()
    assert wide.select(CLASSES).fill_null(-1).to_numpy().tolist() == expected.tolist()
    again = Dataset.from_polars(wide, class_columns=CLASSES)
    assert again.labels().dense().tolist() == expected.tolist()


def test_a_data_frame_with_paths_in_its_index(small):
    frame = pandas.DataFrame({"keywords": ["cat, dog", "cat", "dog"]})
    frame.index = pandas.Index([small.root / name for name in ("a.jpg", "b.jpg", "gone.jpg")], name="file")
    with pytest.warns(TagfillWarning, match=r"gone\.jpg"):
        found = Dataset.from_pandas(frame, small.root)
    assert {record.image: record.tags for record in found} == {"a.jpg": ("cat", "dog"), "b.jpg": ("cat",)}
    twice = pandas.DataFrame([["a.jpg", "cat", "dog"]], columns=["image", "tags", "tags"])
    with pytest.raises(DatasetError, match="Duplicate column names"):
        Dataset.from_pandas(twice)
    with pytest.raises(DatasetError, match="tag_column"):
        Dataset.from_pandas(pandas.DataFrame({"file": ["a.jpg"], "what": ["cat"]}))


def test_without_pandas_a_sentence_says_how_to_get_it(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TagfillError, match=r"pip install 'tagfill\[pandas\]'"):
        small.to_pandas()
