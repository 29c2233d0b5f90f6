"""Probabilities of logits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tagfill.probabilities import probabilities, sigmoid


def test_sigmoid_is_exact_and_never_overflows() -> None:
    expected = [0.0, 1 / (1 + math.exp(3)), 0.5, 1 / (1 + math.exp(-2.5)), 1.0]

    assert sigmoid([-1e4, -3.0, 0.0, 2.5, 1e4]).tolist() == pytest.approx(expected, abs=1e-15)


def test_small_probabilities_keep_their_digits() -> None:
    assert float(sigmoid(-40.0)) == pytest.approx(math.exp(-40), rel=1e-12)


def test_a_probability_is_the_same_alone_and_among_many() -> None:
    logits = np.random.default_rng(0).normal(0, 4, (300, 5000)).astype(np.float32)

    every = probabilities(logits)

    assert every.dtype == np.float32
    assert every.shape == logits.shape
    assert every[299, 4990:].tolist() == probabilities(logits[299, 4990:]).tolist()
    assert every[7, 11] == np.float32(1 / (1 + math.exp(-float(logits[7, 11]))))
