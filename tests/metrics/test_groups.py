from __future__ import annotations

import numpy as np
import pytest

from tagfill.metrics import group_means


def test_groups_go_from_rare_to_frequent():
    assert group_means([1.0, 2.0, 3.0, 4.0], [40, 30, 20, 10], groups=2).tolist() == [3.5, 1.5]


def test_a_class_without_value_keeps_its_place():
    """Skipping it before the sort would move every rarer class of the next group down."""
    values, annotations = [0.1, np.nan, 0.3, 0.4, 0.5, 0.6], [1, 2, 3, 4, 5, 6]
    assert group_means(values, annotations, groups=3).tolist() == pytest.approx([0.1, 0.35, 0.55])


def test_a_group_without_values_is_nan():
    assert np.isnan(group_means([np.nan, 0.5], [1, 2], groups=2)[0])


def test_permuting_classes_changes_nothing():
    random = np.random.default_rng(0)
    values, annotations, order = random.random(23), random.permutation(23), random.permutation(23)
    np.testing.assert_allclose(
        group_means(values[order], annotations[order]), group_means(values, annotations), rtol=0, atol=1e-15
    )


def test_misfits_are_refused():
    with pytest.raises(ValueError, match="must both be"):
        group_means([1.0], [1, 2])
    with pytest.raises(ValueError, match="2 classes do not make 3 groups"):
        group_means([1.0, 2.0], [1, 2], groups=3)
