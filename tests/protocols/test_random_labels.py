from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from protocols.cases import kept, made
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.protocols import random_entries
from tagfill.protocols.random_labels import keep_entries
from tagfill.rng import PairNumbers

SIZE, WIDTH = 5000, 40


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("proportion", [0.01, 0.1, 0.5, 0.9])
def test_kept_share_lies_in_its_binomial_interval(proportion, seed):
    labels = LabelMatrix.from_dense((np.random.default_rng(0).random((SIZE, WIDTH)) < 0.05).astype(np.int8))
    numbers = PairNumbers.of([f"{i}.jpg" for i in range(SIZE)], [f"class {i}" for i in range(WIDTH)], seed)

    found = keep_entries(labels, numbers, proportion)

    for value in (0, 1):
        count, available = int((found.values == value).sum()), int((labels.values == value).sum())
        low, high = stats.binom.interval(0.999, available, proportion)
        assert low <= count <= high


def test_a_larger_proportion_keeps_all_that_a_smaller_one_keeps():
    data = made()
    some, more = kept(random_entries(data, proportion=0.2)), kept(random_entries(data, proportion=0.4))

    assert all(some[image].items() <= more[image].items() for image in some)


def test_a_percentage_is_refused():
    with pytest.raises(TagfillError, match="proportion is 50; give a number from 0 to 1"):
        random_entries(made(), proportion=50)
