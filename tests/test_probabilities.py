"""Probabilities of logits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tagfill.probabilities import Calibration, lowest_logits, measure_calibration, probabilities, sigmoid


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


@pytest.mark.parametrize("slope", [None, 0.3, 4.0])
def test_the_lowest_logit_of_a_threshold_is_exact(slope: float | None) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (1, 2000)).astype(np.float32)
    calibration = None
    if slope is not None:
        calibration = Calibration(slope=slope, offset=tuple(rng.normal(0, 2, 2000).tolist()), source="measured")
    thresholds = probabilities(logits, calibration)

    lowest = lowest_logits(thresholds[0], calibration)

    assert (lowest <= logits).all()
    assert (probabilities(lowest[None], calibration) == thresholds).all()
    assert (probabilities(np.nextafter(lowest, np.float32(-np.inf))[None], calibration) < thresholds).all()


def test_a_threshold_that_is_never_or_always_reached() -> None:
    never, always = lowest_logits([1.5, 0.0])

    assert never == np.inf
    assert always == np.finfo(np.float32).min


def test_two_slopes_meet_at_the_knot_and_old_files_have_one() -> None:
    bent = Calibration(slope=2.0, offset=(1.0,), source="measured", bend=-1.5, knot=4.0)

    assert np.log(bent([[3.0], [4.0], [6.0]]) / (1 - bent([[3.0], [4.0], [6.0]]))).ravel().tolist() == pytest.approx(
        [7.0, 9.0, 10.0]
    )
    assert bent.savable
    assert not bent.model_copy(update={"bend": -2.0}).savable  # flat beyond the knot
    old = Calibration.model_validate_json('{"slope": 2.0, "offset": [1.0], "source": "measured"}')
    assert (old.bend, float(old([[3.0]])[0, 0])) == (0.0, pytest.approx(float(sigmoid(7.0))))


def test_a_bend_is_measured_where_labels_show_one() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 4, (6000, 2))
    truth = Calibration(slope=1.0, offset=(-1.0, 0.0), source="measured", bend=-0.7, knot=0.0)
    found = measure_calibration(logits, (rng.random(logits.shape) < truth(logits)).astype(np.int8))

    assert found is not None
    assert np.abs(found(logits) - truth(logits)).max() < 0.06
    assert (found.slope, found.slope + found.bend) == (pytest.approx(1.0, abs=0.15), pytest.approx(0.3, abs=0.1))


def test_the_bend_of_many_pairs_is_chosen_on_pairs_of_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second class has logits above the knot, and every fourth pair belongs to the first one."""
    monkeypatch.setattr("tagfill.probabilities._KNOT_PAIRS", 4000)
    rng = np.random.default_rng(0)
    logits = np.stack([rng.normal(-3, 1, 8000), rng.normal(3, 4, 8000)], axis=1)
    truth = Calibration(slope=1.0, offset=(0.0, 0.0), source="measured", bend=-0.8, knot=0.0)
    found = measure_calibration(logits, (rng.random(logits.shape) < truth(logits)).astype(np.int8))

    assert found is not None
    assert found.slope + found.bend == pytest.approx(0.2, abs=0.1)


def test_calibration_is_measured_on_complete_labels_only() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4000, 3)).astype(np.float32)
    truth = Calibration(slope=0.5, offset=(-1.0, 0.0, 1.0), source="measured")
    labels = (rng.random(logits.shape) < truth(logits)).astype(np.int8)

    found = measure_calibration(logits, labels)

    assert found is not None
    assert found.source == "measured"
    assert [found.slope, *found.offset] == pytest.approx([0.5, -1.0, 0.0, 1.0], abs=0.1)
    assert measure_calibration(logits, np.where(labels == 0, np.int8(-1), labels)) is None
    assert measure_calibration(-logits, labels) is None  # it would reverse the order of images
