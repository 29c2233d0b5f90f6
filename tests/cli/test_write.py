"""`tagfill write`: datasets in every format that can be written, and predictions as a table of tags."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from formats.datasets import dataset, known_labels
from formats.layouts.pictures import write_picture
from tagfill import formats

CLASSES = ("cat", "dog")
ROWS = {
    "image": ["a.jpg", "a.jpg", "b.jpg", "b.jpg"],
    "label": ["cat", "dog", "cat", "dog"],
    "score": pa.array([0.9, 0.8, 0.2, 0.1], pa.float32()),
    "present": [True, True, False, False],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.jpg", "b.jpg"):
        write_picture(tmp_path / "photos" / name)
    data = dataset({"a.jpg": {"cat": True}, "b.jpg": {"dog": True}}, CLASSES, root=tmp_path / "photos", size=(8, 8))
    data.save(tmp_path / "data")
    return tmp_path


OPTIONS = {"coco": None, "voc": None, "yolo": ["without_box=drop"]}  # the first two need locations
TARGETS = {"csv": "out.csv", "tags": "out.csv", "wide-csv": "out.csv", "cvat": "out.xml", "label-studio": "out.json"}


@pytest.mark.parametrize("name", formats.WRITABLE)
def test_every_format_is_written_or_refuses_with_a_sentence(call, folder, name):
    out = TARGETS.get(name, "out")
    options = [word for option in OPTIONS.get(name) or [] for word in ("-o", option)]
    outcome = call("write", "data", "--format", name, "--out", out, "--quiet", *options)
    if OPTIONS.get(name, []) is None:
        assert outcome.code == 2
        assert outcome.err.startswith("Error: ")
        assert not (folder / out).exists()
    else:
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out == f"{out}: 2 images, 2 classes, written as {name}\n"
        assert (folder / out).exists()


def test_what_was_written_reads_back(call, folder):
    call("write", "data", "--format", "csv", "--out", "tags.csv")
    back = formats.get("tags").read("tags.csv")
    assert known_labels(back) == {"a.jpg": {"cat": True}, "b.jpg": {"dog": True}}


def test_an_existing_file_is_overwritten_only_by_force(call, folder):
    (folder / "tags.csv").write_text("mine")
    outcome = call("write", "data", "--out", "tags.csv")
    assert (outcome.code, (folder / "tags.csv").read_text()) == (2, "mine")
    assert "--force" in outcome.err
    outcome = call("write", "data", "--out", "tags.csv", "--force", "--json")
    assert json.loads(outcome.out) == {"out": "tags.csv", "format": "tags", "images": 2, "classes": 2}
    assert (folder / "tags.csv").read_text() == "image,tags,split,complete\na.jpg,cat,train,\nb.jpg,dog,train,\n"


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_predictions_become_cells_of_tags(call, folder, suffix):
    path = folder / f"predictions{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table(ROWS), path)
    elif suffix == ".csv":
        pacsv.write_csv(pa.table(ROWS), path)
    else:
        lines = [{"image": "a.jpg", "present": ["cat", "dog"], "scores": {}}, {"image": "b.jpg", "present": []}]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = call("write", path.name, "--out", "tags.csv")
    assert (outcome.code, outcome.out) == (0, "tags.csv: 2 images, 2 tags, written as tags\n")
    assert (folder / "tags.csv").read_text() == "image,tags\na.jpg,cat;dog\nb.jpg,\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["data", "--format", "cub"], "The format 'cub' can only be read"),
        (["data", "--format", "csw"], "did you mean 'csv'"),
        (["data", "--format", "csv", "-o", "colour=red"], "There is no option 'colour'"),
        (["other.csv"], "is not a file of predictions"),
        (["other.csv", "--format", "coco"], "Predictions are written as --format tags"),
        (["other.txt"], "ends in none of .parquet, .csv, .jsonl"),
        (["nowhere"], "nowhere"),
    ],
)
def test_user_errors(call, folder, arguments, sentence):
    (folder / "other.csv").write_text("a,b\n1,2\n")
    (folder / "other.txt").write_text("")
    outcome = call("write", *arguments, "--out", "out.csv")
    assert outcome.code == 2
    assert sentence in outcome.err
    assert not (folder / "out.csv").exists()


def test_the_folder_of_a_result_of_fill_is_its_dataset(call, folder):
    """Its table stands for the same tags."""
    (folder / "filled").mkdir()
    (folder / "data").rename(folder / "filled" / "dataset")
    for name in ("filled.json", "filled.csv"):
        (folder / "filled" / name).write_text("{}")
    for source, target in (("filled", "one.csv"), ("filled/filled.csv", "two.csv")):
        assert call("write", source, "--out", target).code == 0
        assert (folder / target).read_text() == "image,tags,split,complete\na.jpg,cat,train,\nb.jpg,dog,train,\n"
