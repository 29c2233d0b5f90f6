"""Logits become probabilities and decisions."""

from __future__ import annotations

import numpy as np
import pytest

from tagfill.errors import TagfillError
from tagfill.inference.pipeline import decide, resolve_thresholds
from tagfill.metrics import GatheredPredictions
from tagfill.probabilities import probabilities
from tagfill.training.evaluation import choose_thresholds


def test_a_label_is_present_from_its_threshold_on() -> None:
    decided = decide(np.zeros((1, 3)), [0.5, 0.500001, 0.0])

    assert decided.present.tolist() == [[True, False, True]]


def test_a_label_that_stands_at_the_threshold_that_evaluation_chose_is_present() -> None:
    """All labels are present, so that the best threshold of a class is the least probability of its images."""
    logits = np.random.default_rng(0).normal(0, 3, (20, 500)).astype(np.float32)
    thresholds = choose_thresholds(GatheredPredictions(np.arange(20), logits, np.ones((20, 500), np.int8)))

    assert decide(logits, thresholds.tolist()).present.all()


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
