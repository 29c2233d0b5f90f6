import numpy as np
import pytest

from reference import calibration as reference
from tagfill.curation.crossfit import calibrate, calibration_errors


def made(rng, images=120, width=3, *, slope=3.0):
    """Labels drawn with the probabilities of some scores, and those scores stretched, with gaps."""
    true = rng.normal(-1, 1.5, (images, width))
    labels = (rng.random((images, width)) < 1 / (1 + np.exp(-true))).astype(np.int8)
    labels[rng.random((images, width)) < 0.2] = -1
    return slope * true + 1.0, labels


def test_equals_the_minimum_of_the_likelihood():
    z, labels = made(np.random.default_rng(1))
    found, known = calibrate(z, labels), labels >= 0
    slope, offset = reference.slope_and_offset(z[known], labels[known] == 1)
    assert found.slope == pytest.approx(slope, abs=1e-4)
    deltas = reference.offsets(z[known], labels[known] == 1, np.nonzero(known)[1], 3, found.slope, offset)
    assert found.offset == pytest.approx(offset + deltas, abs=1e-3)


def test_stretched_scores_become_honest():
    z, labels = made(np.random.default_rng(2), images=2000)
    assert calibrate(z, labels).slope == pytest.approx(1 / 3, rel=0.1)
    before, after = calibration_errors(z, labels)
    assert before > 0.1
    assert after < 0.03


def test_order_within_a_class_stays():
    z, labels = made(np.random.default_rng(3))
    p = calibrate(z, labels)(z)
    assert (np.argsort(p, axis=0, kind="stable") == np.argsort(z, axis=0, kind="stable")).all()


@pytest.mark.parametrize("value", [-1, 0, 1])
def test_nothing_to_learn_from_changes_nothing(value):
    z = np.array([[-1e4, 0.0, 1e4]])
    found = calibrate(z, np.full((1, 3), value))
    assert not found.fitted
    assert found(z).tolist() == [[0.0, 0.5, 1.0]]


def test_labels_that_scores_separate_stay_finite():
    z = np.array([[5.0], [6.0], [-5.0], [-6.0]])
    found = calibrate(z, np.array([[1], [1], [0], [0]]))
    assert np.isfinite(found.slope)
    assert np.isfinite(found.offset).all()


def test_permuting_images_changes_nothing():
    rng = np.random.default_rng(4)
    z, labels = made(rng)
    order = rng.permutation(len(z))
    one, two = calibrate(z, labels), calibrate(z[order], labels[order])
    assert one.slope == pytest.approx(two.slope, abs=1e-9)
    assert one.offset == pytest.approx(two.offset, abs=1e-9)
