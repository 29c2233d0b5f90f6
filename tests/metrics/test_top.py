from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_score, recall_score, top_k_accuracy_score

from tagfill.metrics import at_k, by_label_count, classification, mean_average_precision_by_label_count, top_1


def test_precision_and_recall_of_the_best_k_by_hand():
    scores = [[0.9, 0.8, 0.1, 0.0], [0.1, 0.2, 0.3, 0.4]]
    labels = [[1, 0, 1, 0], [0, 0, 0, 1]]
    assert (at_k(scores, labels, 1).precision, at_k(scores, labels, 1).recall) == (1.0, 0.75)
    assert (at_k(scores, labels, 3).precision, at_k(scores, labels, 3).recall) == (pytest.approx(0.5), 1.0)


def test_unknown_labels_take_no_place_among_the_best():
    assert at_k([[0.9, 0.5]], [[-1, 1]], 1).recall == 1.0


def test_images_without_a_present_label_do_not_count():
    assert at_k([[0.9, 0.5], [0.1, 0.2]], [[0, 0], [0, 1]], 1) == at_k([[0.1, 0.2]], [[0, 1]], 1)
    assert np.isnan(at_k([[0.9]], [[0]], 1).recall)


def test_k_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        at_k([[0.9]], [[1]], 0)


def test_top_1_is_accuracy_where_images_have_one_label():
    random = np.random.default_rng(0)
    scores, classes = random.random((50, 5)), random.integers(0, 5, 50)
    assert top_1(scores, np.eye(5, dtype=int)[classes]) == pytest.approx(
        top_k_accuracy_score(classes, scores, k=1, labels=np.arange(5)), abs=1e-12
    )


def test_any_label_of_the_set_is_right_and_empty_sets_are_skipped():
    scores = [[0.9, 0.5, 0.1], [0.2, 0.9, 0.1], [0.1, 0.2, 0.9]]
    assert top_1(scores, [[1, 1, 0], [1, 0, 1], [0, 0, 0]]) == 0.5


def test_a_class_outside_the_set_is_wrong_even_if_nothing_is_known_of_it():
    assert top_1([[0.9, 0.5]], [[-1, 1]]) == 0.0


def test_every_image_with_a_label_is_in_one_count():
    labels = np.random.default_rng(1).integers(0, 2, (40, 6))
    groups = by_label_count(labels)
    assert sorted(np.concatenate(list(groups.values()))) == np.flatnonzero(labels.any(axis=1)).tolist()
    assert (labels[groups["≥4"]].sum(axis=1) >= 4).all()


def test_precision_and_recall_of_the_best_k_agree_with_scikit_learn():
    """Per image, the best k predicted: precision_score and recall_score over samples, with complete labels."""
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
