from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from reference.localization import average_precision as reference_ap
from reference.localization import ioa as reference_ioa
from reference.rank_correlation import spearman
from tagfill.metrics import LocalizationMeter, average_precision, rank_correlation
from tagfill.metrics import intersection_over_prediction as ioa
from tagfill.metrics.localization import bilinear_weights


@pytest.mark.parametrize("scaling", ["minmax", "sigmoid"])
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(1, 9)] * 2))
def test_ioa_equals_counting_pixels(scaling, seed, small, large):
    """At thresholds that a small map does not hit exactly, where the last bit would decide."""
    thresholds = (0.6131, 0.7243, 0.8171, 0.9277)
    draws = np.random.default_rng(seed)
    maps, truth = draws.normal(size=(3, *small)) * 2, draws.random((3, *large)) < 0.5
    found = ioa(maps, truth, scaling=scaling, thresholds=thresholds)
    for at in range(3):
        for column, threshold in enumerate(thresholds):
            expected = reference_ioa(maps[at].tolist(), truth[at].tolist(), threshold, scaling)
            assert found[at, column] == pytest.approx(expected)


@pytest.mark.parametrize(("small", "large"), [(7, 30), (14, 224), (3, 3), (1, 5), (6, 4)])
def test_bilinear_weights_are_those_of_torch(small, large):
    values = torch.randn(1, 1, small, dtype=torch.float64)
    expected = torch.nn.functional.interpolate(values, size=large, mode="linear", align_corners=False)
    np.testing.assert_allclose(
        bilinear_weights(small, large) @ values[0, 0].numpy(), expected[0, 0].numpy(), atol=1e-12
    )


def test_predicting_everywhere_scores_the_share_of_the_object():
    truth = np.zeros((1, 4, 4), bool)
    truth[:, :, :1] = True
    assert ioa(np.full((1, 2, 2), 5.0), truth, scaling="sigmoid", thresholds=(0.9,)) == 0.25


def test_a_constant_map_predicts_nothing():
    assert not ioa(np.full((1, 2, 2), 5.0), np.ones((1, 4, 4), bool)).any()


def test_more_maps_than_are_resized_at_once():
    draws = np.random.default_rng(0)
    maps, truth = draws.normal(size=(150, 2, 2)), draws.random((150, 4, 4)) < 0.5
    np.testing.assert_array_equal(
        ioa(maps, truth),
        np.concatenate([ioa(maps[i : i + 1], truth[i : i + 1]) for i in range(150)]),
    )


def test_an_unknown_scaling_is_refused():
    with pytest.raises(ValueError, match="no scaling 'softmax'"):
        ioa(np.zeros((1, 1, 1)), np.zeros((1, 1, 1), bool), scaling="softmax")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 3))
def test_average_precision_equals_the_loop(seed, size, classes):
    draws = np.random.default_rng(seed)
    scores = draws.integers(0, 5, (size, classes)) / 4
    labels = draws.integers(-1, 2, (size, classes)).astype(np.int8)
    image, label = np.nonzero((labels == 1) & (draws.random(labels.shape) < 0.8))
    overlap = draws.random((len(image), 4))
    whole = LocalizationMeter(classes)
    cut = size // 2
    for rows in (range(cut, size), range(cut)):
        here = np.isin(image, rows)
        whole.update(scores[rows], labels[rows], image[here] - rows.start, label[here], overlap[here])
    found = whole.compute()
    place = {(i, c): overlap[n] for n, (i, c) in enumerate(zip(image.tolist(), label.tolist(), strict=True))}
    for c in range(classes):
        shown = [i for i in range(size) if (i, c) in place]
        assert found.placed[c] == len(shown)
        assert found.unplaced[c] == (labels[:, c] == 1).sum() - len(shown)
        for column in range(4):
            detections = [(scores[i, c], bool(place[i, c][column] >= 0.5)) for i in shown]
            detections += [(scores[i, c], False) for i in range(size) if labels[i, c] == 0]
            if shown:
                expected = reference_ap(detections, len(shown))
                assert found.average_precision[c, column] == pytest.approx(expected)
            else:
                assert np.isnan(found.average_precision[c, column])


def test_perfect_maps_do_not_change_the_ranking():
    draws = np.random.default_rng(1)
    scores, labels = draws.random((40, 3)), draws.integers(0, 2, (40, 3))
    image, label = np.nonzero(labels)
    every = LocalizationMeter(3)
    every.update(scores, labels, image, label, np.ones((len(image), 4)))
    expected = average_precision(scores, labels)
    np.testing.assert_allclose(every.compute().average_precision, np.tile(expected[:, None], 4))
    assert every.compute().mean == pytest.approx(expected.mean())


def test_meters_of_several_processes_merge():
    draws = np.random.default_rng(2)
    scores, labels = draws.random((10, 2)), draws.integers(0, 2, (10, 2))
    image, label = np.nonzero(labels)
    overlap = draws.random((len(image), 4))
    whole, parts = LocalizationMeter(2), [LocalizationMeter(2), LocalizationMeter(2)]
    whole.update(scores, labels, image, label, overlap)
    for part, rows in zip(parts, (slice(0, 4), slice(4, 10)), strict=True):
        here = (image >= rows.start) & (image < rows.stop)
        part.update(scores[rows], labels[rows], image[here] - rows.start, label[here], overlap[here])
    parts[0].merge(parts[1])
    np.testing.assert_allclose(parts[0].compute().average_precision, whole.compute().average_precision)


def test_nothing_localized_has_no_mean():
    every = LocalizationMeter(2)
    every.update([[0.5, 0.5]], [[1, 0]], [], [], np.empty((0, 4)))
    assert np.isnan(every.compute().mean)
    assert every.compute().unplaced.tolist() == [1, 0]


ROWS = st.lists(st.integers(-3, 3), min_size=2, max_size=12)


@given(ROWS, st.randoms(use_true_random=False))
def test_equals_plain_loops_with_ties(row, random):
    other = [random.randint(-3, 3) for _ in row]

    found = rank_correlation([row], [other])[0]

    assert found == pytest.approx(spearman(row, other), abs=1e-12, nan_ok=True)


def test_equals_scipy_for_many_rows_at_once():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(20, 49)).round(1), rng.normal(size=(20, 49)).round(1)

    expected = [spearmanr(a, b).statistic for a, b in zip(first, second, strict=True)]

    np.testing.assert_allclose(rank_correlation(first, second), expected, atol=1e-12)


def test_one_row_is_compared_with_all():
    rows = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])

    assert rank_correlation(rows, rows[:1]).tolist() == [1.0, -1.0]


@given(ROWS)
def test_only_the_order_of_values_matters(row):
    values = np.array([row, row[::-1]], dtype=np.float64)

    np.testing.assert_array_equal(rank_correlation(np.exp(values), values[:1]), rank_correlation(values, values[:1]))


def test_constant_rows_have_no_correlation():
    assert np.isnan(rank_correlation([[1.0, 1.0]], [[1.0, 2.0]])[0])
