"""The top pairs per class of predictions in several files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagfill.curation import suggest
from tagfill.curation.from_predictions import suggest_from_predictions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

CLASSES = [f"class {number}" for number in range(6)]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("photos")
    images = [{"image": f"{number}.jpg", "split": "train"} for number in range(90)]
    rows = [{"image": f"{number}.jpg", "label": CLASSES[number % 6], "present": True} for number in range(0, 90, 2)]
    return Dataset.from_records("photos", folder, CLASSES, images, rows)


def write(path, image, label, probability):
    pq.write_table(pa.table({"image": image, "label": label, "probability": probability}), path)
    return path


@pytest.mark.parametrize("often", [False, True], ids=["sorted once", "sorted often"])
def test_the_top_of_all_files_are_suggested(data, tmp_path, monkeypatch, often):
    if often:  # as if there were more pairs than can be kept
        monkeypatch.setattr(suggest, "_SPARE_PAIRS", 0)
    rng, expected, files = np.random.default_rng(0), [], []
    for number in range(5):
        pairs = rng.permutation(18 * 6)[:80]
        image, label = 18 * number + pairs // 6, pairs % 6
        probability = rng.integers(0, 9, 80) / 8  # many ties
        names = [f"{at}.jpg" for at in image]
        files.append(write(tmp_path / f"{number}.parquet", names, [CLASSES[at] for at in label], probability))
        known = (image % 2 == 0) & (image % 6 == label)
        expected += [
            (-p, i, c) for p, i, c, k in zip(probability, image, label, known, strict=True) if p >= 0.1 and not k
        ]
    counts = dict.fromkeys(range(6), 0)
    kept = []
    for p, image, label in sorted(expected):
        counts[label] += 1
        if counts[label] <= 7:
            kept.append((f"{image}.jpg", CLASSES[label], -p))

    table = suggest_from_predictions(data, files, per_class=7).table
    assert list(zip(*(table[name].to_pylist() for name in ("image", "label", "probability")), strict=True)) == kept
    assert table["annotated"].null_count == len(kept)
    assert suggest_from_predictions(data, files, per_class=7, missing=5).table.equals(table.slice(0, 5))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ((["7.jpg", "x.jpg"], ["class 0"] * 2, [0.5, 0.5]), r"p\.parquet is about the image 'x\.jpg'"),
        ((["7.jpg"], ["cow"], [0.5]), "is about the label 'cow'"),
        ((["7.jpg"], ["class 0"], [1.5]), "not between 0 and 1"),
        ((["7.jpg"], ["class 0"], [None]), "no numbers"),
    ],
)
def test_predictions_of_something_else_are_refused(data, tmp_path, columns, sentence):
    with pytest.raises(TagfillError, match=sentence):
        suggest_from_predictions(data, [write(tmp_path / "p.parquet", *columns)])


def test_files_that_hold_no_predictions_are_refused(data, tmp_path):
    pq.write_table(pa.table({"image": ["7.jpg"]}), tmp_path / "p.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet")
    for name, sentence in (
        ("p.parquet", "has no column 'label'"),
        ("text.parquet", "is not a Parquet file of predictions"),
        ("none.parquet", "There is no file"),
    ):
        with pytest.raises(TagfillError, match=sentence):
            suggest_from_predictions(data, [tmp_path / name])
    with pytest.raises(TagfillError, match="give --missing or --per-class"):
        suggest_from_predictions(data, [], per_class=None)
