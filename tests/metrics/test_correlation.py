"""Rank correlation against plain loops and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from reference.rank_correlation import spearman
from tagfill.metrics import rank_correlation

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


def test_constant_rows_have_none():
    assert np.isnan(rank_correlation([[1.0, 1.0]], [[1.0, 2.0]])[0])
