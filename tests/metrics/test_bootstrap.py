from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from tagfill.metrics import average_precision, bootstrap_interval, mean_average_precision
from tagfill.metrics.bootstrap import resampled_means

RANDOM = np.random.default_rng(5)
SCORES = RANDOM.integers(0, 8, (40, 5)) / 8  # with ties
LABELS = (RANDOM.random((40, 5)) < SCORES).astype(np.int8)
LABELS[RANDOM.random(LABELS.shape) < 0.2] = -1
LABELS[:, 4] = np.where(np.arange(40) == 3, 1, 0)  # a class that many resamples miss


def repeated_rows(resamples: int, images: int) -> np.ndarray:
    """The draws of the first tile: one generator, resamples × images."""
    return np.random.default_rng(0).integers(0, images, (resamples, images))


def test_each_resample_scores_its_repeated_rows():
    found = resampled_means(SCORES, LABELS, resamples=64)

    expected = [mean_average_precision(SCORES[rows], LABELS[rows]) for rows in repeated_rows(64, 40)]

    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_one_class_agrees_with_scikit_learn():
    labels = np.where(LABELS[:, :1] == 1, 1, 0)
    found = resampled_means(SCORES[:, :1], labels, resamples=20)

    expected = [average_precision_score(labels[rows, 0], SCORES[rows, 0]) for rows in repeated_rows(20, 40)]

    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_more_resamples_than_are_drawn_at_once_continue_the_same_draws():
    np.testing.assert_array_equal(
        resampled_means(SCORES, LABELS, resamples=130)[:128], resampled_means(SCORES, LABELS, resamples=128)
    )


def test_the_seed_decides_the_draws():
    one, again, other = (bootstrap_interval(SCORES, LABELS, resamples=50, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_interval_is_about_two_standard_errors_wide():
    """Of a mean over many classes, whose resamples are nearly normal."""
    random = np.random.default_rng(2)
    labels = (random.random((200, 30)) < 0.3).astype(int)
    scores = random.normal(labels, 1.0)
    interval = bootstrap_interval(scores, labels, resamples=400)
    deviation = resampled_means(scores, labels, resamples=400).std()

    assert interval.high - interval.low == pytest.approx(2 * 1.96 * deviation, rel=0.15)
    assert interval.low < average_precision(scores, labels).mean() < interval.high


def test_interval_is_centered_on_the_measured_value():
    """Resamples rank better: of ten images with one positive per class, a repeated one is ranked next to itself."""
    random = np.random.default_rng(3)
    scores, labels = random.random((10, 40)), np.eye(10, 40, dtype=int)
    labels[random.integers(0, 10, 40), np.arange(40)] = 1
    measured, means = mean_average_precision(scores, labels), resampled_means(scores, labels, resamples=300)
    interval = bootstrap_interval(scores, labels, resamples=300)

    assert means.mean() > measured
    low, high = np.quantile(means, [0.025, 0.975]) - means.mean() + measured
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-12)


def test_higher_level_contains_the_lower():
    narrow, wide = (bootstrap_interval(SCORES, LABELS, resamples=100, level=level) for level in (0.5, 0.95))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_nothing_known_is_nan():
    interval = bootstrap_interval([[0.5]], [[-1]], resamples=3)
    assert np.isnan([interval.low, interval.high]).all()


@pytest.mark.parametrize(("resamples", "level"), [(0, 0.95), (10, 1.0)])
def test_invalid_options_are_refused(resamples, level):
    with pytest.raises(ValueError, match="make no interval"):
        bootstrap_interval(SCORES, LABELS, resamples=resamples, level=level)
