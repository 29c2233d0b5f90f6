"""FiftyOne's folders, against the layout that FiftyOne 1.22 writes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from formats.datasets import PLAIN_NAMES, dataset, known_labels, label_states, rows, splits
from formats.layouts.fiftyone import classifications, detections, label, sample, write_export
from tagfill.errors import DatasetError
from tagfill.formats import fiftyone

CAT, DOG = label("cat"), label("dog", number=2)


def test_states_say_what_is_absent_and_the_rest_is_unknown(tmp_path):
    named = [label("cat", state="present"), label("dog", state="absent"), label("猫", state="unknown")]
    folder = write_export(
        tmp_path,
        sample("data/1.jpg", "train", "blurry", ground_truth=classifications(*named)),
        sample("data/2.jpg", "validation", ground_truth=None),
        sample("data/3.jpg", ground_truth=classifications()),
    )
    data = fiftyone.read(folder, split="rest")
    assert (data.name, data.root, data.classes) == ("shop", folder, ("cat", "dog", "猫"))
    assert known_labels(data) == {
        "data/1.jpg": {"cat": True, "dog": False, "猫": None},
        "data/2.jpg": {},
        "data/3.jpg": {},
    }
    assert splits(data) == {"data/1.jpg": "train", "data/2.jpg": "val", "data/3.jpg": "rest"}
    assert data.images.to_pylist()[0] == {"image": "data/1.jpg", "split": "train", "width": 8, "height": 6}
    assert set(rows(data, "source")) == {("fiftyone",)}


def test_without_states_the_reader_asks(tmp_path):
    folder = write_export(
        tmp_path,
        sample("1.jpg", ground_truth=classifications(CAT)),
        sample("2.jpg", ground_truth=classifications()),
        sample("3.jpg", ground_truth=None),
        classes={"ground_truth": ["dog", "cat"]},
    )
    with pytest.raises(DatasetError, match=r"1 of 6 .* pairs are present"):
        fiftyone.read(folder)
    assert known_labels(fiftyone.read(folder, absent_means="unknown"))["1.jpg"] == {"cat": True}
    data = fiftyone.read(folder, absent_means="absent")
    assert data.classes == ("dog", "cat")
    looked = {"1.jpg": {"dog": False, "cat": True}, "2.jpg": {"dog": False, "cat": False}}
    assert known_labels(data) == {**looked, "3.jpg": {}}  # an empty field was looked at, and a missing one was not


def test_guesses_count_from_a_minimum(tmp_path):
    guesses = classifications(label("cat", confidence=0.9), label("dog", confidence=0.4))
    folder = write_export(tmp_path, sample("1.jpg", predictions=guesses))
    with pytest.raises(DatasetError, match=r"confidences down to 0.4, so they are guesses"):
        fiftyone.read(folder, absent_means="unknown")
    data = fiftyone.read(folder, absent_means="absent", minimum=0.5)
    assert known_labels(data) == {"1.jpg": {"cat": True}}  # a doubtful dog is unknown, not absent
    certain = write_export(tmp_path, sample("1.jpg", predictions=classifications(label("cat", confidence=1))))
    assert known_labels(fiftyone.read(certain, absent_means="unknown")) == {"1.jpg": {"cat": True}}


def test_one_classification_and_boxes(tmp_path):
    boxes = detections(label("dog", kind="Detection", bounding_box=[0.25, 0.5, 0.5, 0.25], confidence=None))
    folder = write_export(tmp_path, sample("1.jpg", weather=label("sunny"), boxes=boxes))
    with pytest.raises(DatasetError, match="several fields, 'boxes', 'weather'; choose one with field="):
        fiftyone.read(folder, absent_means="unknown")
    data = fiftyone.read(folder, field="boxes", absent_means="unknown")
    assert rows(data, "label", "kind", "x", "y", "w", "h") == [("dog", "box", 0.5, 0.625, 0.5, 0.25)]
    assert known_labels(fiftyone.read(folder, field="weather", absent_means="unknown")) == {"1.jpg": {"sunny": True}}
    with pytest.raises(DatasetError, match="no labels in field 'tags'"):
        fiftyone.read(folder, field="tags")


def test_absolute_paths_are_relative_to_what_they_share(tmp_path):
    samples = [sample(f"/photos/{name}", ground_truth=classifications(CAT)) for name in ("a/1.jpg", "b/2.jpg")]
    folder = write_export(tmp_path, *samples)
    data = fiftyone.read(folder, absent_means="unknown")
    assert (data.root, data.names()) == (Path("/photos"), ["a/1.jpg", "b/2.jpg"])
    assert fiftyone.read(folder, absent_means="unknown", root="/").names() == ["photos/a/1.jpg", "photos/b/2.jpg"]
    with pytest.raises(DatasetError, match="not a path below the image root"):
        fiftyone.read(folder, absent_means="unknown", root="/elsewhere")


def test_one_file_per_sample_and_media_that_are_no_images(tmp_path):
    folder = write_export(tmp_path)
    (folder / "samples.json").unlink()
    (folder / "samples").mkdir()
    for number, given_ in enumerate([sample("1.jpg", ground_truth=classifications(CAT)), sample("2.mp4")]):
        if given_["filepath"].endswith("mp4"):
            given_["_media_type"] = "video"
        (folder / "samples" / f"{number:06d}-x.json").write_text(json.dumps(given_), encoding="utf-8")
    assert known_labels(fiftyone.read(folder, absent_means="unknown")) == {"1.jpg": {"cat": True}}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"ground_truth": classifications(label(None))}, "has the name null"),
        ({"ground_truth": classifications(label("cat", confidence=2))}, "has a confidence of 2; 0 to 1"),
        (
            {"ground_truth": classifications(label("cat", state="maybe"))},
            'has the state "maybe"; present, absent, unknown',
        ),
        ({"ground_truth": {"_cls": "Classifications", "classifications": 5}}, "holds 5; a list of labels"),
        ({"ground_truth": detections(label("cat", bounding_box=[0, 0, 1]))}, "left, top, width and height"),
        ({"filepath": None}, "has no 'filepath' but null"),
        ({"tags": ["train", "test"]}, "is tagged test and train; an image belongs to one split"),
        ({"tags": "train"}, "a list of names is expected"),
        ({"metadata": 5}, "has metadata of 5"),
        ({"split": ["rest"]}, 'has a split of ["rest"]'),
    ],
)
def test_damaged_samples_are_named(tmp_path, fields, sentence):
    folder = write_export(tmp_path, {**sample("1.jpg"), **fields})
    with pytest.raises(DatasetError, match="sample 0") as error:
        fiftyone.read(folder, absent_means="unknown")
    assert sentence in str(error.value)


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"has no metadata.json and samples.json; export"):
        fiftyone.read(tmp_path)


def test_classes_given_must_cover_the_labels(tmp_path):
    folder = write_export(tmp_path, sample("1.jpg", ground_truth=classifications(CAT, DOG)))
    with pytest.raises(DatasetError, match="uses label 'dog', which is not among the classes given"):
        fiftyone.read(folder, classes=["cat"], absent_means="unknown")


@given(label_states(names=PLAIN_NAMES, splits=("train", "val", "Fold2")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_what_is_written_is_read_back(tmp_path, data):
    fiftyone.write(data.replace(root=tmp_path / "photos"), tmp_path / "out")
    back = fiftyone.read(tmp_path / "out", absent_means=None if any(known_labels(data).values()) else "unknown")
    assert (back.name, back.classes, known_labels(back)) == (data.name, data.classes, known_labels(data))
    assert (splits(back), back.root) == (splits(data), tmp_path / "photos")


def test_predictions_are_written_with_confidences(tmp_path):
    data = dataset({"1.jpg": {"cat": False}, "2.jpg": {}}, ("cat", "dog"), root=tmp_path / "photos")
    table = {"image": ["1.jpg"] * 2, "label": ["cat", "dog"], "probability": [0.25, 0.75], "present": [False, True]}
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    fiftyone.write(data, tmp_path / "out", predictions=tmp_path / "p.parquet")
    first, second = json.loads((tmp_path / "out" / "samples.json").read_bytes())["samples"]
    listed = [(one["label"], one["confidence"], one["state"]) for one in first["predictions"]["classifications"]]
    assert listed == [("dog", 0.75, "present"), ("cat", 0.25, None)]
    assert second["predictions"] is None
    assert known_labels(fiftyone.read(tmp_path / "out"))["1.jpg"] == {"cat": False}
    guessed = fiftyone.read(tmp_path / "out", field="predictions", minimum=0.5)
    assert known_labels(guessed)["1.jpg"] == {"dog": True}
    with pytest.raises(DatasetError, match="is no Parquet file of 'tagfill predict'"):
        fiftyone.write(data, tmp_path / "out", predictions=tmp_path / "out" / "samples.json")


def test_images_can_be_copied_into_the_folder(tmp_path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "a" / "1.jpg").write_bytes(b"image")
    data = dataset({"a/1.jpg": {"cat": True}}, ("cat",), root=tmp_path / "photos")
    fiftyone.write(data, tmp_path / "out", images="copy")
    assert (tmp_path / "out" / "data" / "a" / "1.jpg").read_bytes() == b"image"
    assert fiftyone.read(tmp_path / "out").names() == ["data/a/1.jpg"]
    with pytest.raises(DatasetError, match="FiftyOne needs image files on this machine"):
        fiftyone.write(data.replace(root="https://example.org/photos"), tmp_path / "out")
