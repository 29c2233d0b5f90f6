"""`tagfill add`: new photos join a dataset folder."""

from __future__ import annotations

import json

import pytest

from formats.datasets import dataset, known_labels, splits
from formats.layouts.pictures import write_picture
from tagfill.dataset import Dataset


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.jpg", "a.jpg", "new/1.jpg", "new/2.jpg"):
        write_picture(tmp_path / "photos" / name)
    write_picture(tmp_path / "elsewhere" / "x.jpg")
    dataset({"b.jpg": {"cat": True}}, ("cat",), root=tmp_path / "photos").save(tmp_path / "data")
    return tmp_path


def test_new_photos_are_appended_without_labels(call, folder):
    outcome = call("add", "data", "photos/new", "--split", "pool", "--json")
    assert json.loads(outcome.out) == {"dataset": "data", "split": "pool", "added": 2, "skipped": 0, "images": 3}
    outcome = call("add", "data")
    assert "1 photos added to split train of data, 3 were there already; it has 4 images" in outcome.out
    assert "Next: tagfill fill data" in outcome.err
    data = Dataset.open("data")
    assert splits(data) == {"b.jpg": "train", "new/1.jpg": "pool", "new/2.jpg": "pool", "a.jpg": "train"}
    assert known_labels(data) == {"b.jpg": {"cat": True}, "new/1.jpg": {}, "new/2.jpg": {}, "a.jpg": {}}


def test_only_the_table_of_images_and_its_checksum_are_written(call, folder):
    before = {path.name: path.read_bytes() for path in (folder / "data").iterdir()}
    call("add", "data", "photos/a.jpg", "photos/a.jpg")
    after = {path.name: path.read_bytes() for path in (folder / "data").iterdir() if path.name != ".lock"}
    assert {name for name in after if after[name] != before.get(name)} == {"images.parquet", "dataset.yaml"}
    old, new = (texts["dataset.yaml"].decode().splitlines() for texts in (before, after))
    assert [line.split(":")[0].strip() for line in new if line not in old] == ["images.parquet"]
    assert Dataset.open("data").names() == ["b.jpg", "a.jpg"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["data", "elsewhere"], "is not below"),
        (["data", "photos/none"], "There is no file or folder photos/none"),
        (["data", "data/../photos/notes"], "has no photo"),
        (["nowhere"], "nowhere"),
        (["data", "--split", " "], "--split is blank"),
    ],
)
def test_user_errors(call, folder, arguments, sentence):
    (folder / "photos" / "notes").mkdir()
    outcome = call("add", *arguments)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert len(Dataset.open("data")) == 1
    assert not (folder / "nowhere").exists()
