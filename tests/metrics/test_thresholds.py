from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import f1_score, precision_score, recall_score

from tagfill.metrics import best_thresholds, count

modest = settings(max_examples=40, deadline=None)


@st.composite
def cases(draw):
    shape = draw(st.tuples(st.integers(1, 20), st.integers(1, 4)))
    scores = draw(arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])))
    labels = draw(arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1])))
    return scores, labels


@modest
@given(case=cases())
def test_no_score_is_a_better_threshold_and_no_equal_one_is_higher(case):
    scores, labels = case
    chosen = best_thresholds(scores, labels, default=0.5)
    best = count(scores, labels, chosen).f1
    for column in range(scores.shape[1]):
        if not (labels[:, column] == 1).any():
            assert chosen[column] == 0.5
            continue
        known = labels[:, column] != -1
        for threshold in scores[known, column]:
            f1 = f1_score(labels[known, column], scores[known, column] >= threshold, zero_division=0)
            assert f1 <= best[column] + 1e-12
            assert threshold <= chosen[column] or f1 < best[column] - 1e-12


@modest
@given(case=cases(), threshold=st.sampled_from([0.1, 0.3, 0.9]))
def test_counts_agree_with_scikit_learn(case, threshold):
    scores, labels = case
    found = count(scores, labels, threshold)
    seen = [column for column in range(scores.shape[1]) if (labels[:, column] == 1).any()]
    parts = [(labels[:, c][labels[:, c] != -1], scores[:, c][labels[:, c] != -1] >= threshold) for c in seen]
    judged = [f1_score(z, p, zero_division=0) for z, p in parts]

    assert found.f1[seen] == pytest.approx(judged, abs=1e-12)
    assert np.isnan(np.delete(found.f1, seen)).all()
    if seen:
        assert found.mean_f1 == pytest.approx(np.mean(judged), abs=1e-12)
        precision = np.mean([precision_score(z, p, zero_division=0) for z, p in parts])
        recall = np.mean([recall_score(z, p, zero_division=0) for z, p in parts])
        harmonic = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        assert found.class_f1 == pytest.approx(harmonic, abs=1e-12)
    known = labels != -1
    if (labels[known] == 1).any():
        overall = f1_score(labels[known], scores[known] >= threshold, zero_division=0)
        assert found.overall_f1 == pytest.approx(overall, abs=1e-12)


def test_thresholds_of_one_split_apply_to_another():
    thresholds = best_thresholds([[0.2], [0.6], [0.8]], [[0], [1], [1]], default=0.5)
    assert thresholds.tolist() == [0.6]
    assert count([[0.5], [0.7]], [[1], [1]], thresholds).f1.tolist() == [pytest.approx(2 / 3)]


def test_nothing_known_is_nan():
    found = count([[0.5]], [[-1]], 0.5)
    assert np.isnan([found.mean_f1, found.class_f1, found.overall_f1]).all()
