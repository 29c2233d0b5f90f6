"""Predictions of photos that have some of their tags, against the truth, for three ways in which tags go missing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from inference.colors import CLASSES, write_image, write_model
from tagfill.cli.app import app
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.inference import find_images, predict, predict_to_file
from tagfill.probabilities import Calibration, sigmoid

PHOTOS = 300
MEASURED = Calibration(slope=1.0, offset=(0.0, 0.0, 0.0), source="measured")
NEAR = pytest.approx


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos whose colors have the probability that the model says, and the model."""
    folder = tmp_path_factory.mktemp("tagged")
    rng = np.random.default_rng(0)
    channels = np.clip(128 + 16 * rng.normal(-0.5, 2, (PHOTOS, 3)), 1, 254).astype(int)
    for number, channel in enumerate(channels):
        write_image(folder / "photos" / f"{number:03d}.png", tuple(channel.tolist()))
    logits = (channels - 128) / 16
    np.savez(folder / "truth.npz", logits=logits, present=rng.random(logits.shape) < sigmoid(logits))
    write_model(folder / "colors.onnx", calibration=MEASURED)
    write_model(folder / "uncalibrated.onnx")
    return folder


@pytest.fixture(scope="module")
def logits(place: Path) -> np.ndarray:
    return np.load(place / "truth.npz")["logits"]


@pytest.fixture(scope="module")
def present(place: Path) -> np.ndarray:
    return np.load(place / "truth.npz")["present"]


def draw(way: str, logits: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Which of the true tags are given."""
    chance = np.random.default_rng(1).random(present.shape)
    if way == "one per image":
        return present & (chance == np.where(present, chance, 0).max(1, keepdims=True))
    share = 0.5 if way == "at random" else 0.1 + 0.8 * sigmoid(logits)  # pale objects are small ones
    return present & (chance < share)


def dataset(place: Path, given: np.ndarray, absent: np.ndarray | None = None) -> Dataset:
    images = [{"image": f"{row:03d}.png", "split": "train"} for row in range(PHOTOS)]
    rows = []
    for known, state in ((given, True), (np.zeros_like(given) if absent is None else absent, False)):
        rows += [
            {"image": f"{row:03d}.png", "label": CLASSES[column], "present": state}
            for row, column in np.argwhere(known)
        ]
    return Dataset.from_records("colors", str(place / "photos"), list(CLASSES), images, rows)


def scores(found) -> np.ndarray:
    return np.array([[each.scores[name] for name in CLASSES] for each in found])


@pytest.mark.parametrize("way", ["at random", "one per image", "when small"])
def test_sums_of_what_was_not_given_are_right(place, logits, present, way):
    given = draw(way, logits, present)
    found = scores(predict(place / "colors.onnx", dataset(place, given)))
    assert (found[given] == 1).all()
    missing = present[~given].sum()
    assert found[~given].sum() == NEAR(missing, rel=0.15)
    plain = scores(predict(place / "colors.onnx", dataset(place, given), ignore_tags=True))
    assert plain == NEAR(scores(predict(place / "colors.onnx", place / "photos")))
    assert plain[~given].sum() > 1.15 * missing  # what the tags are used for
    likely = ~given & (found > 0.5) & given.any(1, keepdims=True)  # photos without a tag may not have been annotated
    assert present[likely].mean() == NEAR(found[likely].mean(), abs=0.12)


def test_at_random_it_is_the_formula(place, logits, present):
    """q is the number of given tags for each that is expected, and the tags are the only labels that are known."""
    given = draw("at random", logits, present)
    found = scores(predict(place / "colors.onnx", dataset(place, given)))
    p = sigmoid(logits)
    q = given.sum() / p.sum()
    wanted = p * (1 - q) / (1 - p * q)
    assert found[~given] == NEAR(wanted[~given], abs=0.1)  # q of a class differs, and log odds are less extreme
    assert np.corrcoef(found[~given], wanted[~given])[0, 1] > 0.99


def test_known_labels_stay_and_a_complete_split_is_predicted_like_new_photos(place, logits, present):
    given, absent = draw("at random", logits, present), np.zeros_like(present)
    absent[0], given[0] = [False, True, False], [True, False, False]
    given[-50:], absent[-50:] = present[-50:], ~present[-50:]  # nothing is left to tell
    data = dataset(place, given, absent)
    data = data.with_splits(np.array(["train"] * (PHOTOS - 50) + ["test"] * 50, dtype=object))
    found = list(predict(place / "colors.onnx", data))
    assert (found[0].scores["red"], found[0].scores["green"], found[0].given) == (1.0, 0.0, ("red",))
    assert scores(found[-50:]) == NEAR(sigmoid(logits[-50:]), abs=1e-4)
    assert found[-1].given == ()


def test_photos_outside_of_the_dataset_and_untagged_datasets_are_predicted_as_ever(place, logits, present, tmp_path):
    extra = tmp_path / "extra.png"
    write_image(extra, (100, 140, 128))
    both = list(predict(place / "colors.onnx", [dataset(place, draw("at random", logits, present)), extra]))
    (alone,) = predict(place / "colors.onnx", extra)
    assert both[-1] == alone
    untagged = scores(predict(place / "colors.onnx", dataset(place, np.zeros_like(present))))
    assert untagged == NEAR(sigmoid(logits), abs=1e-4)


def test_a_file_says_the_same_and_refuses_other_tags(place, logits, present, tmp_path, monkeypatch):
    monkeypatch.setattr("tagfill.inference.prediction_parts._PART_IMAGES", 150)
    given = draw("at random", logits, present)
    data, out = dataset(place, given), tmp_path / "out.jsonl"
    predict_to_file(place / "colors.onnx", data, out)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    found = list(predict(place / "colors.onnx", data))
    assert [(line["image"], line["scores"]) for line in lines] == [(each.image, each.scores) for each in found]
    tags = json.loads((tmp_path / "out.jsonl.json").read_text(encoding="utf-8"))["tags"]
    assert tags["photos"] == given.any(1).sum()
    assert tags["given"] == NEAR(given.sum() / present.sum(), abs=0.08)
    predict_to_file(place / "colors.onnx", data, out)  # nothing to do
    for other in ({"images": data, "ignore_tags": True}, {"images": dataset(place, given & ~given[::-1])}):
        with pytest.raises(TagfillError, match="other tags"):
            predict_to_file(place / "colors.onnx", other.pop("images"), out, **other)


def test_the_command_says_that_tags_were_used(place, logits, present, tmp_path):
    dataset(place, draw("at random", logits, present)).save(tmp_path / "data")
    command = ["predict", str(place / "colors.onnx"), str(tmp_path / "data"), "--json"]
    used = CliRunner().invoke(app, command)
    assert "photos have tags, which are kept as given; other labels get the probability" in used.stderr
    ignored = CliRunner().invoke(app, [*command, "--ignore-tags"])
    assert "tags" not in ignored.stderr
    assert len(json.loads(ignored.stdout)["predictions"]) == PHOTOS
    uncalibrated = CliRunner().invoke(app, [*command[:1], str(place / "uncalibrated.onnx"), *command[2:]])
    assert "because the model has no calibration" in uncalibrated.stderr


def test_classes_are_matched_by_name(place):
    images = [{"image": "000.png", "split": "train"}]
    rows = [{"image": "000.png", "label": name, "present": True} for name in ("blue", "violet")]
    data = Dataset.from_records("other", str(place / "photos"), ["violet", "blue"], images, rows)
    labels, incomplete = find_images(data).labels(CLASSES)
    assert labels.dense().tolist() == [[-1, -1, 1]]
    assert incomplete.tolist() == [False]  # both classes of the dataset are known
