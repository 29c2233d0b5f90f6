from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import top_k_accuracy_score

from tagfill.metrics import at_k, by_label_count, top_1


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
