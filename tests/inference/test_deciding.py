"""Probabilities, thresholds and the most probable labels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tagfill.errors import TagfillError
from tagfill.inference.deciding import chosen_thresholds, decide, probabilities


def test_probabilities_are_sigmoids_and_never_overflow() -> None:
    logits = np.array([-1e4, -3.0, 0.0, 2.5, 1e4])

    expected = [0.0, 1 / (1 + math.exp(3)), 0.5, 1 / (1 + math.exp(-2.5)), 1.0]

    assert probabilities(logits).tolist() == pytest.approx(expected, abs=1e-15)


def test_a_label_is_present_from_its_threshold_on() -> None:
    decided = decide(np.zeros((1, 3)), [0.5, 0.500001, 0.0])

    assert decided.present.tolist() == [[True, False, True]]


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

    assert chosen_thresholds(classes, None) == (0.5, 0.5)
    assert chosen_thresholds(classes, [0.2, 0.7]) == (0.2, 0.7)
    assert chosen_thresholds(classes, [0.2, 0.7], 0.4) == (0.4, 0.4)
    assert chosen_thresholds(classes, [0.2, 0.7], {"dog": 0.1}) == (0.2, 0.1)


def test_thresholds_of_unknown_classes_and_beyond_probability_are_refused() -> None:
    with pytest.raises(TagfillError, match="did you mean 'dog'"):
        chosen_thresholds(["cat", "dog"], None, {"dig": 0.1})
    with pytest.raises(TagfillError, match=r"1\.5 is not a probability"):
        chosen_thresholds(["cat", "dog"], None, 1.5)
