from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tagfill.errors import TagfillError
from tagfill.models import Classifier, create, set_calibration
from tagfill.probabilities import Calibration, probabilities

CLASSES = ("cat", "dog", "owl")


@functools.cache
def saved() -> Path:
    """A model folder, to be copied."""
    folder = Path(tempfile.mkdtemp()) / "model"
    create("test_resnet", "cam", CLASSES, image_size=64, boost=5.0, boost_train=False).save(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(saved(), tmp_path / "model")


def edit(folder: Path, **changes) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_options_of_the_head_are_kept(folder):
    assert json.loads((folder / "model.json").read_text())["head_options"] == {
        "boost": 5.0,
        "boost_from": 0.0,
        "boost_train": False,
        "boost_eval": True,
        "boost_unseen": False,
    }
    assert Classifier.load(folder).head.options == {
        "boost": 5.0,
        "boost_from": 0.0,
        "boost_train": False,
        "boost_eval": True,
        "boost_unseen": False,
    }


def test_thresholds_are_kept(folder):
    model = Classifier.load(folder)
    assert model.thresholds is None
    model.thresholds = (0.5, 0.25, 0.9)
    model.save(folder)
    assert Classifier.load(folder).thresholds == (0.5, 0.25, 0.9)


CALIBRATION = Calibration(slope=0.3, offset=(-1.0, 0.1, 2.0), source="estimated")


def test_a_calibration_is_set_without_changing_which_labels_are_present(folder):
    model = Classifier.load(folder)
    logits = np.random.default_rng(0).normal(0, 4, (200, 3)).astype(np.float32)
    model.thresholds = tuple(probabilities(logits[0]).tolist())
    model.save(folder)

    set_calibration(folder, CALIBRATION)

    found = Classifier.load(folder)
    assert found.calibration == CALIBRATION
    present = probabilities(logits, CALIBRATION) >= np.array(found.thresholds)
    np.testing.assert_array_equal(present, probabilities(logits) >= np.array(model.thresholds))
    torch.testing.assert_close(found.state_dict(), model.state_dict())

    set_calibration(folder, None, thresholds=(0.1, 0.2, 0.3))
    assert (Classifier.load(folder).calibration, Classifier.load(folder).thresholds) == (None, (0.1, 0.2, 0.3))


def test_a_model_of_version_0_1_has_no_calibration(folder):
    content = json.loads((folder / "model.json").read_text())
    del content["calibration"]
    (folder / "model.json").write_text(json.dumps(content))

    assert Classifier.load(folder).calibration is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"offset": (0.0,)}, "its calibration has 1 classes instead of 3"),
        ({"slope": -1.0}, "its calibration was not fitted, or gives lower probabilities to higher scores"),
    ],
)
def test_a_calibration_that_does_not_fit_is_refused(folder, changes, problem):
    before = (folder / "model.json").read_bytes()

    with pytest.raises(TagfillError, match=problem):
        set_calibration(folder, CALIBRATION.model_copy(update=changes))

    assert (folder / "model.json").read_bytes() == before


def test_a_folder_may_be_given_as_text(folder):
    Classifier.load(str(folder)).save(f"{folder}-again")
    assert Classifier.load(f"{folder}-again").classes == CLASSES


def test_too_few_thresholds_are_not_saved(folder):
    model = Classifier.load(folder)
    model.thresholds = (0.5,)
    with pytest.raises(TagfillError, match="The model cannot be saved: it has 1 thresholds for 3 classes"):
        model.save(folder)


@pytest.mark.parametrize("content", [b"", b'{"backbone": "test_res', b"\xff\xfe\x00", b'"cam"'])
def test_a_damaged_description_is_refused(folder, content):
    (folder / "model.json").write_bytes(content)
    with pytest.raises(TagfillError, match=r"model\.json is damaged: .*; save the model again or use another copy"):
        Classifier.load(folder)


KEYS = ["backbone", "head", "head_options", "classes", "classes_identity", "preprocessing", "thresholds"]


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_named(folder, key):
    path = folder / "model.json"
    content = json.loads(path.read_text())
    del content[key]
    path.write_text(json.dumps(content))
    with pytest.raises(TagfillError, match=rf"model\.json is damaged: '{key}' is missing"):
        Classifier.load(folder)


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_another_type_is_refused(folder, key):
    edit(folder, **{key: 7})
    with pytest.raises(TagfillError, match=f"'{key}' is 7"):
        Classifier.load(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"classes": ["cat", "owl", "dog"]}, "its classes are not those that the model was saved with"),
        ({"classes": ["cat", "dog", 3]}, "'classes.2' is 3 "),
        ({"preprocessing": {"size": [64, 64]}}, "'preprocessing.mean' is missing"),
        ({"preprocessing": {"size": [64, 64], "mean": [1, 2], "std": [1, 1, 1]}}, "'preprocessing.mean.2' is missing"),
        ({"preprocessing": {"size": [64, "a"], "mean": [1] * 3, "std": [1] * 3}}, "'preprocessing.size.1' is 'a' "),
        ({"preprocessing": {"size": [64, 64], "mean": [1] * 3, "std": [1, 1, 0]}}, "'preprocessing.std.2' is 0 "),
        ({"thresholds": [0.5, 0.5]}, "has 2 thresholds for 3 classes"),
        ({"thresholds": [0.5, 0.5, 3]}, "'thresholds.2' is 3 .*less than or equal to 1"),
        ({"backbone": "test_resnt"}, "does not describe a model: There is no backbone 'test_resnt'"),
        ({"head": "camm"}, "does not describe a model: There is no head 'camm'"),
        ({"head_options": {"bost": 5}}, "There is no option 'bost' of head 'cam'; did you mean 'boost'"),
        ({"head_options": {"boost": "high"}}, "Option boost='high' of head 'cam': Input should be a valid number"),
    ],
)
def test_an_edited_description_is_refused(folder, changes, problem):
    edit(folder, **changes)
    with pytest.raises(TagfillError, match=problem):
        Classifier.load(folder)


def test_missing_weights_are_reported(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(TagfillError, match=r"has a model\.json but no model\.safetensors"):
        Classifier.load(folder)


@pytest.mark.parametrize("size", [0, 7, 100, 5000, -1])
def test_weights_that_are_cut_short_are_refused(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(TagfillError, match=r"model\.safetensors is damaged: it is cut short"):
        Classifier.load(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"head.fc.bias": None}, "head.fc.bias is missing in the file and 3 in the model"),
        ({"head.fc.bias": torch.zeros(4)}, "head.fc.bias is 4 in the file and 3 in the model"),
        ({"head.extra": torch.zeros(2, 2)}, "head.extra is 2×2 in the file and missing in the model"),
    ],
)
def test_weights_of_another_model_are_refused(folder, change, problem):
    path = folder / "model.safetensors"
    state = {name: value for name, value in {**load_file(path), **change}.items() if value is not None}
    save_file(state, path)
    with pytest.raises(TagfillError, match=f"does not fit the model that model.json describes: {problem}"):
        Classifier.load(folder)


@pytest.mark.parametrize("size", [[10**30, 64], [64, 10**9]])
def test_an_impossible_input_size_is_damage(folder, size):
    preprocessing = json.loads((folder / "model.json").read_text())["preprocessing"]
    edit(folder, preprocessing={**preprocessing, "size": size})
    with pytest.raises(TagfillError, match=r"model\.json is damaged: its input has"):
        Classifier.load(folder)
