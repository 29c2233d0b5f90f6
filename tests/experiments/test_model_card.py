"""The folder for a model hub: it loads back as the same model, and its card holds numbers that were computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import tagfill
from images.pictures import noise
from tagfill.cli import main
from tagfill.errors import TagfillError
from tagfill.experiments import Leaderboard, write_model_card
from tagfill.inference import open_predictor

Compared = tuple[Path, Leaderboard]


@pytest.fixture(scope="module")
def card(compared: Compared, material: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "photo-tagger"
    run = compared[0] / "runs" / "role-s0"
    return write_model_card(run, folder, features=material["features"], license_="apache-2.0")


def test_the_folder_is_a_model_in_the_layout_of_the_hub(card, compared):
    assert sorted(path.name for path in card.parent.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert json.loads((card.parent / "config.json").read_text())["library_name"] == "tagfill"
    loaded, trained = open_predictor(card.parent), open_predictor(compared[0] / "runs" / "role-s0")
    assert (loaded.classes, loaded.thresholds, loaded.calibration) == (
        trained.classes,
        trained.thresholds,
        trained.calibration,
    )
    pixels = noise(128, 128)[None]
    assert np.array_equal(loaded(pixels).logits, trained(pixels).logits)


def test_scores_and_counts_are_those_of_the_dataset(card, compared, material):
    data = tagfill.Dataset.open(material["dataset"])
    result = tagfill.evaluate(compared[0] / "runs" / "role-s0", data, split="test", features=material["features"])
    text = card.read_text()
    front = yaml.safe_load(text.split("---")[1])
    (found,) = front["model-index"]
    assert front["license"] == "apache-2.0"
    assert found["results"][0]["metrics"][0]["value"] == round(100 * result.mean, 2)
    assert f"| mean average precision | {100 * result.mean:.1f} |" in text
    labels = data.labels("train")
    first = int(np.count_nonzero(labels.classes[labels.values == 1] == 0))
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {data.classes[0]} | ")]
    assert row.endswith(f" | {first} |")
    assert "| train | 32 | 32 | 0 | 95.0 % |" in text
    assert f"Classes with fewer than 20 photos known to show them: {data.classes[0]}, " in text


def test_a_model_without_its_dataset_says_that_it_was_not_measured(compared, tmp_path):
    text = write_model_card(compared[0] / "runs" / "role-s0" / "best", tmp_path / "hub").read_text()
    assert "Not measured" in text
    assert "model-index" not in text


def test_a_folder_that_is_not_empty_is_refused(compared, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TagfillError, match="already holds something; give an empty or new folder"):
        write_model_card(compared[0] / "runs" / "role-s0", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_another_dataset_is_refused(compared, tmp_path):
    other = tagfill.Dataset.from_records("other", root=tmp_path, classes=["cup"], images=[], rows=[])
    with pytest.raises(TagfillError, match="other does not have the classes of the model"):
        write_model_card(compared[0] / "runs" / "role-s0" / "best", tmp_path / "hub", dataset=other)


def test_the_command_needs_something_to_write(compared, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tagfill", "export", str(compared[0] / "runs" / "role-s0")])
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 2
    assert "give --onnx FILE, or --model-card FOLDER" in capsys.readouterr().err
