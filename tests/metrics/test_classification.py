from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score, top_k_accuracy_score

from tagfill.metrics import (
    best_thresholds,
    by_label_count,
    classification,
    confusions,
    count,
    mean_average_precision_by_label_count,
    top1_accuracy,
)
from tagfill.metrics import (
    precision_recall_at_k as at_k,
)

modest = settings(max_examples=40, deadline=None)


@st.composite
def cases(draw):
    shape = draw(st.tuples(st.integers(1, 20), st.integers(1, 4)))
    scores = draw(arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])))
    labels = draw(arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1])))
    return scores, labels


@modest
@given(case=cases())
def test_no_other_threshold_is_better(case):
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


def test_precision_and_recall_at_k_by_hand():
    scores = [[0.9, 0.8, 0.1, 0.0], [0.1, 0.2, 0.3, 0.4]]
    labels = [[1, 0, 1, 0], [0, 0, 0, 1]]
    assert (at_k(scores, labels, 1).precision, at_k(scores, labels, 1).recall) == (
        1.0,
        0.75,
    )
    assert (at_k(scores, labels, 3).precision, at_k(scores, labels, 3).recall) == (
        pytest.approx(0.5),
        1.0,
    )


def test_unknown_labels_are_not_in_the_top_k():
    assert at_k([[0.9, 0.5]], [[-1, 1]], 1).recall == 1.0


def test_images_without_a_present_label_do_not_count():
    assert at_k([[0.9, 0.5], [0.1, 0.2]], [[0, 0], [0, 1]], 1) == at_k([[0.1, 0.2]], [[0, 1]], 1)
    assert np.isnan(at_k([[0.9]], [[0]], 1).recall)


def test_k_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        at_k([[0.9]], [[1]], 0)


def test_top1_accuracy_agrees_with_scikit_learn():
    random = np.random.default_rng(0)
    scores, classes = random.random((50, 5)), random.integers(0, 5, 50)
    assert top1_accuracy(scores, np.eye(5, dtype=int)[classes]) == pytest.approx(
        top_k_accuracy_score(classes, scores, k=1, labels=np.arange(5)), abs=1e-12
    )


def test_any_label_of_the_set_is_right_and_empty_sets_are_skipped():
    scores = [[0.9, 0.5, 0.1], [0.2, 0.9, 0.1], [0.1, 0.2, 0.9]]
    assert top1_accuracy(scores, [[1, 1, 0], [1, 0, 1], [0, 0, 0]]) == 0.5


def test_an_unknown_top_class_is_wrong():
    assert top1_accuracy([[0.9, 0.5]], [[-1, 1]]) == 0.0


def test_every_image_with_a_label_is_in_one_count():
    labels = np.random.default_rng(1).integers(0, 2, (40, 6))
    groups = by_label_count(labels)
    assert sorted(np.concatenate(list(groups.values()))) == np.flatnonzero(labels.any(axis=1)).tolist()
    assert (labels[groups["≥4"]].sum(axis=1) >= 4).all()


def test_precision_and_recall_at_k_agree_with_scikit_learn():
    """Per image, with the top k predicted: precision_score and recall_score over samples, with complete labels."""
    random = np.random.default_rng(2)
    scores, labels = random.random((300, 7)), random.integers(0, 2, (300, 7))
    counted = labels.any(axis=1)
    for k in (1, 3, 5):
        predicted = np.zeros_like(labels)
        np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :k], 1, axis=1)
        found = at_k(scores, labels, k)
        assert found.precision == pytest.approx(
            precision_score(labels[counted], predicted[counted], average="samples"), abs=1e-12
        )
        assert found.recall == pytest.approx(
            recall_score(labels[counted], predicted[counted], average="samples"), abs=1e-12
        )


def test_more_images_than_are_ranked_at_once(monkeypatch):
    random = np.random.default_rng(3)
    scores, labels = random.random((50, 4)), random.integers(-1, 2, (50, 4))
    expected = at_k(scores, labels, 2)
    monkeypatch.setattr(classification, "_IMAGES_AT_ONCE", 7)
    assert at_k(scores, labels, 2) == expected


def test_map_by_label_count_agrees_with_scikit_learn_over_those_images():
    random = np.random.default_rng(4)
    scores, labels = random.random((200, 5)), (random.random((200, 5)) < 0.3).astype(int)

    found = mean_average_precision_by_label_count(scores, labels, most=3)

    assert list(found) == ["1", "2", "≥3"]
    for name, (value, images) in found.items():
        many = labels.sum(axis=1)
        rows = many >= 3 if name == "≥3" else many == int(name)
        shown = [c for c in range(5) if labels[rows, c].any()]
        expected = np.mean([average_precision_score(labels[rows, c], scores[rows, c]) for c in shown])
        assert value == pytest.approx(expected, abs=1e-12)
        assert images == rows.sum()


def plain(called: np.ndarray, labels: np.ndarray) -> dict[tuple[int, int], tuple[int, float, float]]:
    """All pairs by loops: together, expected, rate."""
    found = {}
    images, classes = labels.shape
    for a in range(classes):
        without = [i for i in range(images) if labels[i, a] == 0]
        alarms = sum(bool(called[i, a]) for i in without)
        for b in range(classes):
            shown = [i for i in without if labels[i, b] == 1]
            together = sum(bool(called[i, a]) for i in shown)
            if together:
                found[a, b] = (together, alarms * len(shown) / len(without), together / len(shown))
    return found


@pytest.mark.parametrize("images_at_once", [7, 4096])
def test_pairs_equal_counting(images_at_once, monkeypatch):
    monkeypatch.setattr(classification, "_IMAGES_AT_ONCE", images_at_once)
    random = np.random.default_rng(0)
    called, labels = random.random((60, 6)) < 0.4, random.integers(-1, 2, (60, 6))
    expected = {pair: values for pair, values in plain(called, labels).items() if values[0] > values[1]}

    found = confusions(called, labels, most=100)

    assert {(one.predicted, one.shown) for one in found} == expected.keys()
    for one in found:
        assert (one.together, one.expected, one.rate) == pytest.approx(expected[one.predicted, one.shown])
    assert [one.excess for one in found] == sorted((one.excess for one in found), reverse=True)


def test_a_class_that_is_everywhere_explains_nothing():
    """Class 0 is on all images, so every false positive of class 1 is on one of them by chance."""
    labels = np.array([[1, 0, 1]] * 5 + [[1, 0, 0]] * 5)
    called = np.zeros((10, 3), bool)
    called[:5, 1] = True

    (found,) = confusions(called, labels)

    assert (found.predicted, found.shown, found.together, found.expected, found.rate) == (1, 2, 5, 2.5, 1.0)


def test_unknown_labels_are_no_confusion():
    assert confusions([[True, True], [False, True]], [[-1, 1], [0, 1]]) == []


def test_only_the_strongest_are_returned():
    random = np.random.default_rng(1)
    called, labels = random.random((50, 8)) < 0.4, random.integers(0, 2, (50, 8))
    assert confusions(called, labels, most=3) == confusions(called, labels, most=20)[:3]


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="must both be"):
        confusions([[True]], [[0, 1]])
