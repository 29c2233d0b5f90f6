from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reference import pair_numbers as reference
from tagfill.protocols.pairs import PairNumbers

IMAGES = [f"train/{index:05d}.jpg" for index in range(2000)]
LABELS = [f"class {index}" for index in range(50)]
GRID = np.indices((len(IMAGES), len(LABELS)))


@pytest.mark.parametrize("step", [0, 1, 5])
def test_numbers_are_those_of_blake2b_and_splitmix64(step):
    numbers = PairNumbers.of(["été.jpg", "b.jpg"], ["cat", "dog"], 7)

    found = numbers.at(np.array([0, 1]), np.array([1, 0]), step).tolist()

    assert found == [reference.number(7, "été.jpg", "dog", step), reference.number(7, "b.jpg", "cat", step)]


def test_steps_may_differ_from_pair_to_pair():
    numbers = PairNumbers.of(["a", "b"], ["cat"], 7)
    image, label = np.array([0, 1]), np.array([0, 0])

    found = numbers.uniform(image, label, np.array([2, 0]))

    assert found.tolist() == [reference.uniform(7, "a", "cat", 2), reference.uniform(7, "b", "cat")]


@pytest.mark.parametrize("seed", [0, 1, 1200])
def test_numbers_are_uniform(seed):
    uniform = PairNumbers.of(IMAGES, LABELS, seed).uniform(*GRID)

    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 0.001


def test_images_labels_steps_and_seeds_are_independent():
    first = PairNumbers.of(IMAGES, LABELS, 0).uniform(*GRID)
    others = [
        np.roll(first, 1, axis=0),
        np.roll(first, 1, axis=1),
        PairNumbers.of(IMAGES, LABELS, 0).uniform(*GRID, 1),
        PairNumbers.of(IMAGES, LABELS, 1).uniform(*GRID),
    ]

    for other in others:
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 3.3 / np.sqrt(first.size)


def test_an_image_and_a_label_of_the_same_name_differ():
    numbers = PairNumbers.of(["cat"], ["cat"], 0)

    assert numbers.images[0] != numbers.labels[0]
