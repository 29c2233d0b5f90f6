from __future__ import annotations

import numpy as np
import pytest

from tagfill.labels import LabelMatrix
from tagfill.protocols import pairs as pairs_module
from tagfill.protocols.pairs import keep_pairs, known_pairs, sample_pairs
from tagfill.rng import PairNumbers


def matrix(size: int, width: int) -> tuple[LabelMatrix, PairNumbers]:
    rng = np.random.default_rng(0)
    labels = LabelMatrix.from_dense(rng.integers(-1, 2, (size, width)))
    return labels, PairNumbers.of([str(i) for i in range(size)], [str(i) for i in range(width)], 0)


@pytest.mark.parametrize("wanted", [0, 1, 100, 2000])
def test_draws_the_smallest_numbers_in_their_order(wanted):
    labels, numbers = matrix(300, 10)
    image, label = np.nonzero(labels.dense() >= 0)
    expected = np.sort(numbers.bits(image, label))[:wanted]

    drawn = sample_pairs(labels, numbers, np.array([wanted]))

    assert (numbers.bits(drawn.image, drawn.label) == expected).all()


def test_draws_all_when_there_are_fewer():
    labels, numbers = matrix(30, 10)

    assert len(sample_pairs(labels, numbers, np.array([10_000]))) == (labels.values >= 0).sum()


def test_draws_from_each_group_independently():
    labels, numbers = matrix(300, 10)

    drawn = sample_pairs(labels, numbers, np.arange(10), lambda pairs: pairs.label)

    assert np.bincount(drawn.label, minlength=10).tolist() == list(range(10))


def test_blocks_do_not_matter(monkeypatch):
    labels, numbers = matrix(300, 10)
    whole = sample_pairs(labels, numbers, np.array([50]))

    monkeypatch.setattr(pairs_module.known_pairs, "__defaults__", (16,))

    parts = sample_pairs(labels, numbers, np.array([50]))
    assert (parts.image == whole.image).all()
    assert (parts.label == whole.label).all()


@pytest.mark.parametrize("block", [1, 7, 25, 10_000])
def test_known_pairs_are_visited_once_and_in_order(block):
    labels, _ = matrix(40, 6)
    image, label = np.nonzero(labels.dense() >= 0)

    parts = list(known_pairs(labels, block))

    assert np.concatenate([part.image for part in parts]).tolist() == image.tolist()
    assert np.concatenate([part.label for part in parts]).tolist() == label.tolist()
    if block >= 6:
        assert max(len(part) for part in parts) <= block


def test_keep_pairs_keeps_the_chosen_pairs():
    labels, _ = matrix(40, 6)

    thinned = keep_pairs(labels, lambda pairs: (pairs.image + pairs.label) % 3 == 0)

    image, label = np.indices(labels.shape)
    expected = np.where((image + label) % 3 == 0, labels.dense(), -1)
    assert (thinned.dense() == expected).all()
