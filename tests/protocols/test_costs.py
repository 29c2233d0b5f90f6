from __future__ import annotations

import numpy as np
import pytest

from tagfill.protocols.costs import Costs


@pytest.mark.parametrize(
    ("kind", "located", "width", "seconds"),
    [("I", 3.5, 80, 80), ("SP", 3.5, 80, 84.9), ("SB", 3.5, 80, 101), ("SP", 5, 365, 372), ("SB", 5, 365, 395)],
)
def test_average_seconds_of_an_image_are_the_published_ones(kind, located, width, seconds):
    assert Costs().average(kind, located, width) * width == pytest.approx(seconds)


def test_exact_seconds_count_instances_of_positives():
    value, instances = np.array([1, 0, 1], dtype=np.int8), np.array([1, 1, 3])

    assert Costs().exact("AP", value, instances).tolist() == pytest.approx([2.4, 1, 5.2])
    assert Costs().exact("AB", value, instances).tolist() == [7, 1, 19]
    assert Costs().exact("I", value, instances).tolist() == [1, 1, 1]


def test_the_budget_is_a_share_of_all_pairs_at_image_level():
    assert Costs(image=2.0).budget(1, (82_783, 80)) == pytest.approx(2 * 66_226.4)
