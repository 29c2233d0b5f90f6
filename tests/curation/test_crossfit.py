import numpy as np
import pytest

from reference import calibration as reference
from tagfill.curation.crossfit import HELD_OUT, calibrate, calibration_errors, hold_out, split_folds
from tagfill.errors import TagfillError


def made(rng, images=120, width=3, *, slope=3.0):
    """Labels drawn with the probabilities of some scores, and those scores stretched, with gaps."""
    true = rng.normal(-1, 1.5, (images, width))
    labels = (rng.random((images, width)) < 1 / (1 + np.exp(-true))).astype(np.int8)
    labels[rng.random((images, width)) < 0.2] = -1
    return slope * true + 1.0, labels


def test_calibration_equals_the_maximum_of_the_likelihood():
    z, labels = made(np.random.default_rng(1))
    found, known = calibrate(z, labels), labels >= 0
    slope, offset = reference.slope_and_offset(z[known], labels[known] == 1)
    assert found.slope == pytest.approx(slope, abs=1e-4)
    deltas = reference.offsets(z[known], labels[known] == 1, np.nonzero(known)[1], 3, found.slope, offset)
    assert found.offset == pytest.approx(offset + deltas, abs=1e-3)


@pytest.mark.parametrize("bend", [-0.8, 0.0])
def test_the_bend_is_that_of_the_highest_likelihood(bend):
    rng = np.random.default_rng(5)
    z = rng.normal(0, 4, (200, 2))
    labels = (rng.random(z.shape) < 1 / (1 + np.exp(-(z + bend * np.maximum(z, 0))))).astype(np.int8)
    found = calibrate(z, labels)
    slope, offset, change, knot = reference.bent(z.ravel(), labels.ravel())
    assert (found.slope, found.bend) == (pytest.approx(slope, abs=1e-3), pytest.approx(change, abs=1e-3))
    assert found.knot == pytest.approx(0.0 if knot is None else knot)
    assert (knot is None) == (bend == 0)
    plain = z.ravel() * found.slope + found.bend * np.maximum(z.ravel() - found.knot, 0)
    deltas = reference.offsets(plain, labels.ravel(), np.tile([0, 1], 200), 2, 1.0, offset)
    assert found.offset == pytest.approx(offset + deltas, abs=1e-3)


def test_stretched_scores_become_calibrated():
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
def test_without_two_kinds_of_labels_scores_stay_unchanged(value):
    z = np.array([[-1e4, 0.0, 1e4]])
    found = calibrate(z, np.full((1, 3), value))
    assert not found.fitted
    assert found(z).tolist() == [[0.0, 0.5, 1.0]]


def test_separable_labels_give_finite_parameters():
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


def test_folds_share_nothing_and_cover_all():
    parts = split_folds(11, 3, seed=5)
    assert sorted(np.concatenate(parts).tolist()) == list(range(11))
    assert sorted(map(len, parts)) == [3, 4, 4]
    assert not all(np.array_equal(a, b) for a, b in zip(parts, split_folds(11, 3, seed=6), strict=True))
    with pytest.raises(TagfillError, match="cannot be divided"):
        split_folds(2, 3, seed=0)


def test_held_out_images_form_their_own_split(part):
    rows = part.split("train")[:7]
    left = hold_out(part, rows)
    assert left.split(HELD_OUT).tolist() == rows.tolist()
    assert len(left.split("train")) == len(part.split("train")) - 7
    assert left.identities["images"] == part.identities["images"]
