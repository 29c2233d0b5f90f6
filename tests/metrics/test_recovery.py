from __future__ import annotations

from math import isnan

import pytest

from tagfill.metrics import Recovered, gap_closed, recovered


@pytest.mark.parametrize(("method", "share"), [(60, 0), (80, 1), (75, 0.75), (55, -0.25), (82, 1.1)])
def test_share_of_the_way_from_floor_to_ceiling(method, share):
    assert gap_closed(method, floor=60, ceiling=80) == pytest.approx(share)


def test_the_unit_of_scores_does_not_matter():
    assert gap_closed(0.75, 0.6, 0.8) == pytest.approx(gap_closed(75, 60, 80))


@pytest.mark.parametrize("ceiling", [60, 59])
def test_without_a_gap_there_is_no_share(ceiling):
    assert isnan(gap_closed(70, floor=60, ceiling=ceiling))


def test_recovered_labels_by_hand():
    observed = [[1, -1, -1], [-1, -1, 0]]
    truth = [[1, 1, 0], [1, 0, 1]]
    called = [[True, True, True], [False, False, True]]

    found = recovered(called, observed, truth)

    assert (found.called, found.right, found.missing) == (2, 1, 2)  # observed entries count neither way
    assert (found.precision, found.recall) == (0.5, 0.5)


def test_unknown_truth_is_left_out():
    assert recovered([[True]], [[-1]], [[-1]]) == Recovered(0, 0, 0)


def test_nothing_called_or_missing_is_nan():
    found = recovered([[False]], [[-1]], [[0]])
    assert isnan(found.precision)
    assert isnan(found.recall)


def test_shapes_of_recovered_labels_must_agree():
    with pytest.raises(ValueError, match="must be the same"):
        recovered([[True]], [[-1, 0]], [[0, 0]])
