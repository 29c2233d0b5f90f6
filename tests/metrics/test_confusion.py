from __future__ import annotations

import numpy as np
import pytest

from tagfill.metrics import classification as module
from tagfill.metrics import confusions


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
    monkeypatch.setattr(module, "_CONFUSION_IMAGES_AT_ONCE", images_at_once)
    random = np.random.default_rng(0)
    called, labels = random.random((60, 6)) < 0.4, random.integers(-1, 2, (60, 6))
    expected = {pair: values for pair, values in plain(called, labels).items() if values[0] > values[1]}

    found = confusions(called, labels, most=100)

    assert {(one.predicted, one.shown) for one in found} == expected.keys()
    for one in found:
        assert (one.together, one.expected, one.rate) == pytest.approx(expected[one.predicted, one.shown])
    assert [one.excess for one in found] == sorted((one.excess for one in found), reverse=True)


def test_a_class_that_is_everywhere_explains_nothing():
    """Class 0 is on all images, so every false alarm of class 1 is beside it, as chance has it."""
    labels = np.array([[1, 0, 1]] * 5 + [[1, 0, 0]] * 5)
    called = np.zeros((10, 3), bool)
    called[:5, 1] = True

    (found,) = confusions(called, labels)

    assert (found.predicted, found.shown, found.together, found.expected, found.rate) == (1, 2, 5, 2.5, 1.0)


def test_what_is_unknown_is_no_mistake():
    assert confusions([[True, True], [False, True]], [[-1, 1], [0, 1]]) == []


def test_only_the_strongest_are_given():
    random = np.random.default_rng(1)
    called, labels = random.random((50, 8)) < 0.4, random.integers(0, 2, (50, 8))
    assert confusions(called, labels, most=3) == confusions(called, labels, most=20)[:3]


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="must both be"):
        confusions([[True]], [[0, 1]])
