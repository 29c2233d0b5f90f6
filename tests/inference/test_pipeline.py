"""The prediction pipeline: decisions from logits, and the same scores from evaluation and prediction."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tagfill
import tagfill.inference
from tagfill import models
from tagfill.errors import TagfillError
from tagfill.inference import PredictionFile, predict
from tagfill.inference.pipeline import decide, resolve_thresholds, saved_thresholds
from tagfill.metrics import GatheredPredictions
from tagfill.probabilities import Calibration, probabilities
from tagfill.training.evaluation import LoadedModel, choose_thresholds


def test_a_label_is_present_from_its_threshold_on() -> None:
    decided = decide(np.zeros((1, 3)), [0.5, 0.500001, 0.0])

    assert decided.present.tolist() == [[True, False, True]]


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_label_exactly_at_the_threshold_that_evaluation_chose_is_present(calibrated: bool) -> None:
    """All labels are present, so that the best threshold of a class is the least probability of its images."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (20, 500)).astype(np.float32)
    calibration = Calibration(slope=0.7, offset=tuple(rng.normal(0, 1, 500).tolist()), source="measured")
    used = calibration if calibrated else None
    thresholds = choose_thresholds(GatheredPredictions(np.arange(20), logits, np.ones((20, 500), np.int8)), used)

    assert decide(logits, thresholds.tolist(), calibration=used).present.all()

    raw = saved_thresholds(SimpleNamespace(thresholds=tuple(thresholds.tolist()), calibration=used), raw_scores=True)
    assert raw is not None
    assert decide(logits, raw).present.all()


def test_top_k_keeps_the_most_probable_first_and_ties_in_class_order() -> None:
    logits = np.array([[0.0, 3.0, 0.0, -1.0], [1.0, -2.0, 5.0, 4.0]])

    decided = decide(logits, [0.9, 0.99, 0.5, 0.5], top_k=3)

    assert decided.labels.tolist() == [[1, 0, 2], [2, 3, 0]]
    assert decided.present.tolist() == [[False, False, True], [True, True, False]]
    assert decided.scores == pytest.approx(np.take_along_axis(probabilities(logits), decided.labels, 1), abs=1e-7)


def test_top_k_above_the_number_of_classes_keeps_all() -> None:
    assert decide(np.zeros((2, 3)), [0.5] * 3, top_k=9).labels.shape == (2, 3)


def test_thresholds_are_the_models_unless_others_are_given() -> None:
    classes = ["cat", "dog"]

    assert resolve_thresholds(classes, None) == (0.5, 0.5)
    assert resolve_thresholds(classes, [0.2, 0.7]) == (0.2, 0.7)
    assert resolve_thresholds(classes, [0.2, 0.7], 0.4) == (0.4, 0.4)
    assert resolve_thresholds(classes, [0.2, 0.7], {"dog": 0.1}) == (0.2, 0.1)


def test_thresholds_of_unknown_classes_and_beyond_probability_are_refused() -> None:
    with pytest.raises(TagfillError, match="did you mean 'dog'"):
        resolve_thresholds(["cat", "dog"], None, {"dig": 0.1})
    with pytest.raises(TagfillError, match=r"1\.5 is not a probability"):
        resolve_thresholds(["cat", "dog"], None, 1.5)


def test_evaluation_and_prediction_score_images_alike(tmp_path: Path) -> None:
    """Training's evaluation and `predict` return the same numbers to the last bit, with any number of workers."""
    data = tagfill.scenes.make(tmp_path / "scenes", train=5, val=1, test=1, size=64)
    folder = tmp_path / "model"
    models.create("test_efficientnet", "cam", data.classes, pretrained=False, image_size=64).save(folder)
    predicted = list(predict(folder, data, split="train", workers=2))

    for workers in (0, 2):
        ((batch, prediction),) = LoadedModel.open(folder, data, workers=workers).predict("train")
        scores = probabilities(prediction.logits.numpy())
        assert batch.index.tolist() == list(range(5))
        assert [list(each.scores.values()) for each in predicted] == scores.tolist()


def test_old_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="PredictionFile"):
        assert tagfill.inference.Filled is PredictionFile
