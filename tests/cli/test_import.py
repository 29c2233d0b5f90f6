"""`tagfill import` and `tagfill inspect` with photos: what is understood, and which photos are missing."""

from __future__ import annotations

import json

import pytest

from formats.layouts.pictures import write_picture
from tagfill.dataset import Dataset


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        write_picture(tmp_path / "photos" / name)
    (tmp_path / "tags.csv").write_text("file;keywords\na.jpg;cat, dog\nb.jpg;cat\ngone.jpg;dog\n")
    (tmp_path / "labels.csv").write_text('image,label\na.jpg,"cat, dog"\nb.jpg,cat\ngone.jpg,dog\n')
    return tmp_path


def test_tags_and_photos_become_a_dataset(call, folder):
    outcome = call("import", "tags", "tags.csv", "--photos", "photos", "--out", "data")
    assert outcome.code == 0
    assert "3 photos" not in outcome.err
    assert "2 photos, 2 tags, 1.5 per photo" in outcome.err
    assert "  tags       'keywords', separated by ','" in outcome.err
    assert "warning: 1 of 3 photos of the table are not below photos and are left out: 'gone.jpg'." in outcome.out
    assert "Next: tagfill fill data --out filled" in outcome.err
    assert Dataset.open("data").names() == ["a.jpg", "b.jpg", "c.jpg"]


def test_warnings_are_part_of_the_json(call, folder):
    outcome = call("import", "csv", "labels.csv", "--photos", "photos", "--absent-means", "unknown", "--out", "data",
                   "--quiet", "--json")  # fmt: skip
    problems = [problem["problem"] for problem in json.loads(outcome.out)["problems"]]
    assert [problem.partition(":")[0] for problem in problems] == [
        "1 of 3 classes contains ',', ';' or '|'",
        "1 of 3 photos are missing below photos",
    ]
    assert outcome.code == 0


def test_a_separator_is_an_option(call, folder):
    call("import", "csv", "labels.csv", "--photos", "photos", "-o", "separator=,", "--absent-means", "unknown",
         "--out", "data")  # fmt: skip
    assert Dataset.open("data").classes == ("cat", "dog")


def test_inspect_names_missing_photos_without_decoding(call, folder):
    call("import", "csv", "labels.csv", "--photos", "photos", "--absent-means", "unknown", "--out", "data")
    outcome = call("inspect", "data", "--quiet")
    assert outcome.code == 2  # more than 1 % are missing
    assert "error: 1 of 3 photos are missing below photos: 'gone.jpg'." in outcome.out
    write_picture(folder / "photos" / "gone.jpg")
    assert call("inspect", "data", "--quiet").code == 0
    (folder / "photos").rename(folder / "moved")
    outcome = call("inspect", "data", "--quiet")
    assert (outcome.code, "There is no image root" in outcome.out) == (2, True)


@pytest.mark.parametrize("name", ["voc", "scenes"])
def test_photos_are_refused_where_they_have_no_meaning(call, folder, name):
    outcome = call("import", name, *(["tags.csv"] if name == "voc" else []), "--photos", "photos", "--out", "data")
    assert outcome.code == 2
    assert "--photos" in outcome.err
    assert not (folder / "data").exists()
