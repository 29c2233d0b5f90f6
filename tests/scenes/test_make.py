from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from reference.rle import decode
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError
from tagfill.scenes import CLASSES, GROUPS, HIERARCHY, contact_sheet, make, render

SIZES = {"train": 5, "val": 2, "test": 3, "size": 96}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return make(tmp_path_factory.mktemp("scenes") / "new", **SIZES)


@pytest.fixture(scope="module")
def masks(scenes):
    return [row for row in scenes.rows().to_pylist() if row["kind"] == "mask"]


def pixels_of(dataset, name):
    with Image.open(dataset.root / name) as image:
        return np.asarray(image)


def test_splits_have_the_requested_sizes(scenes):
    assert {name: len(rows) for name, rows in scenes.splits.items()} == {"train": 5, "val": 2, "test": 3}


def test_every_label_is_known(scenes):
    assert scenes.labels().complete()


def test_labels_are_the_drawn_objects(scenes):
    drawn = [{instance.label for instance in render("test", i, size=96).instances} for i in range(3)]

    assert [{CLASSES[c] for c in np.flatnonzero(row)} for row in scenes.labels("test").dense()] == drawn


def test_files_hold_the_pixels_that_were_drawn(scenes):
    assert np.array_equal(pixels_of(scenes, "images/val/00001.png"), render("val", 1, size=96).pixels)


def test_the_image_table_has_the_size_of_each_file(scenes):
    for row in scenes.images.to_pylist():
        assert pixels_of(scenes, row["image"]).shape == (row["height"], row["width"], 3)


def test_masks_decode_to_the_drawn_pixels(scenes, masks):
    first = [row for row in masks if row["image"] == "images/train/00000.png"]
    decoded = [decode(row["rle"], row["rle_height"], row["rle_width"]) for row in first]

    assert decoded == [instance.mask.astype(int).tolist() for instance in render("train", 0, size=96).instances]


def test_boxes_are_tight_around_the_masks(masks):
    for row in masks:
        mask = np.array(decode(row["rle"], row["rle_height"], row["rle_width"]))
        down, across = np.nonzero(mask)
        left = (row["x"] - row["w"] / 2) * row["rle_width"]
        bottom = (row["y"] + row["h"] / 2) * row["rle_height"]
        assert (left, bottom) == pytest.approx((across.min(), down.max() + 1), abs=1e-3)


def test_rows_name_their_source(scenes):
    assert scenes.rows()["source"].unique().to_pylist() == ["scenes"]


def test_the_same_parameters_give_the_same_dataset(scenes, tmp_path):
    again = make(tmp_path / "again", **SIZES)

    assert again.identities == scenes.identities


def test_a_larger_dataset_contains_the_smaller(scenes, tmp_path):
    more = make(tmp_path / "more", **SIZES | {"train": 7})
    name = "images/train/00004.png"

    assert np.array_equal(pixels_of(more, name), pixels_of(scenes, name))


def test_without_groups_there_is_no_hierarchy(scenes):
    assert (scenes.classes, scenes.hierarchy) == (CLASSES, ())


def test_groups_are_parents_in_the_hierarchy(tmp_path):
    grouped = make(tmp_path / "grouped", **SIZES, groups=True)

    assert (grouped.classes, grouped.hierarchy) == (CLASSES + GROUPS, HIERARCHY)


def test_a_group_is_present_exactly_where_a_child_is(tmp_path):
    labels = make(tmp_path / "grouped", **SIZES, groups=True).labels().dense()

    for position, group in enumerate(GROUPS):
        children = [CLASSES.index(child) for child, parent in HIERARCHY if parent == group]
        assert np.array_equal(labels[:, len(CLASSES) + position], labels[:, children].max(axis=1))


def test_a_complete_folder_is_opened_and_not_written(scenes):
    before = {path: path.stat().st_mtime_ns for path in scenes.root.rglob("*")}

    make(scenes.root, **SIZES)

    assert {path: path.stat().st_mtime_ns for path in scenes.root.rglob("*")} == before


def test_an_interrupted_folder_is_completed(scenes, tmp_path):
    broken = make(tmp_path / "broken", **SIZES)
    for name in ("dataset.yaml", "annotations.parquet", "images/test/00002.png"):
        (broken.root / name).unlink()

    completed = make(broken.root, **SIZES)

    assert completed.identities == scenes.identities


def test_a_damaged_image_of_an_interrupted_folder_is_rendered_again(scenes, tmp_path):
    broken = make(tmp_path / "broken", **SIZES)
    (broken.root / "dataset.yaml").unlink()
    (broken.root / "images/test/00002.png").write_bytes(b"")

    make(broken.root, **SIZES)

    assert np.array_equal(pixels_of(broken, "images/test/00002.png"), pixels_of(scenes, "images/test/00002.png"))


def test_a_folder_of_other_scenes_is_refused(scenes):
    with pytest.raises(DatasetError, match=r"holds other scenes.*seed=0.*seed=1.*give another folder"):
        make(scenes.root, **SIZES, seed=1)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("irreplaceable")

    with pytest.raises(DatasetError, match="is not empty and holds no scenes"):
        make(tmp_path, **SIZES)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "scenes").write_text("a file")

    with pytest.raises(DatasetError, match="is a file; give a folder"):
        make(tmp_path / "scenes", **SIZES)


def test_a_folder_killed_before_its_first_image_is_completed(tmp_path):
    (tmp_path / ".scenes.json.4711.tmp").write_text("{")

    assert len(make(tmp_path, **SIZES)) == 10


def test_an_unreadable_recipe_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "scenes.json").write_text("{")

    with pytest.raises(DatasetError, match=r"scenes\.json cannot be read"):
        make(tmp_path, **SIZES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": -1}, "-1 train images"),
        ({"train": 0, "val": 0, "test": 0}, "No image was requested"),
        ({"size": 8}, "at least 64"),
        ({"seed": -1}, "The seed is -1"),
    ],
)
def test_invalid_numbers_are_refused(tmp_path, changes, message):
    with pytest.raises(DatasetError, match=message):
        make(tmp_path / "new", **SIZES | changes)


def test_the_default_folder_is_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path))

    dataset = make(train=1, val=0, test=0, size=64)

    assert dataset.folder is not None
    assert dataset.folder.parent == tmp_path / "scenes"


def test_the_default_folder_depends_on_the_parameters(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path))

    first, second = (make(train=1, val=0, test=0, size=size).folder for size in (64, 72))

    assert first != second


def test_a_moved_folder_still_opens(tmp_path):
    make(tmp_path / "here", train=1, val=0, test=0, size=64)
    (tmp_path / "here").rename(tmp_path / "there")

    moved = Dataset.open(tmp_path / "there")

    assert pixels_of(moved, moved.names()[0]).shape[2] == 3


def test_progress_counts_images(tmp_path):
    class Counter:
        total, done = 0, 0

        def bar(self, title, total, unit=""):
            self.total = total
            return self

        def say(self, text): ...
        def note(self, text): ...
        def advance(self, steps=1):
            self.done += steps

        def __enter__(self):
            return self

        def __exit__(self, *error): ...

    counter = Counter()
    make(tmp_path / "new", train=2, val=1, test=0, size=64, progress=counter)

    assert (counter.done, counter.total) == (3, 3)


def test_a_contact_sheet_is_a_square_grid(scenes):
    assert contact_sheet(scenes, 9, cell=50, gap=5).size == (170, 170)


def test_scenes_import_nothing_heavy():
    code = "import json, sys, tagfill.scenes; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert {"torch", "matplotlib"} & set(json.loads(result.stdout)) == set()
