from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from tagfill.metrics import expected_calibration_error, reliability


def test_curve_agrees_with_scikit_learn():
    random = np.random.default_rng(0)
    probabilities = random.random(500)
    labels = (random.random(500) < probabilities).astype(int)
    present, predicted = calibration_curve(labels, probabilities, n_bins=10)

    found = reliability(probabilities, labels, bins=10)

    np.testing.assert_allclose(found.present, present, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.predicted, predicted, rtol=0, atol=1e-12)
    assert found.error == pytest.approx((found.count / 500 * np.abs(present - predicted)).sum(), abs=1e-12)


def test_wrong_certainty_is_the_largest_error():
    assert expected_calibration_error([[1.0, 0.0]], [[0, 1]]) == 1.0


def test_unknown_entries_are_left_out():
    assert expected_calibration_error([0.7, 0.1], [1, -1]) == expected_calibration_error([0.7], [1])
    assert np.isnan(expected_calibration_error([0.7], [-1]))


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_values_outside_0_to_1_are_refused(value):
    with pytest.raises(ValueError, match="apply the sigmoid to logits first"):
        reliability([value], [1])
