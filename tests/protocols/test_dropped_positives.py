from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from protocols.cases import made, observed, truth
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.protocols import dropped_positives
from tagfill.protocols.dropped_positives import keep_positives
from tagfill.rng import PairNumbers


@pytest.mark.parametrize("keep", [0.4, 0.75])
def test_kept_share_lies_in_its_binomial_interval(keep):
    labels = LabelMatrix.from_dense((np.random.default_rng(0).random((5000, 40)) < 0.05).astype(np.int8))
    numbers = PairNumbers.of([f"{i}.jpg" for i in range(5000)], [f"class {i}" for i in range(40)], 0)

    found = keep_positives(labels, numbers, keep, absent=False)

    low, high = stats.binom.interval(0.999, int(labels.positives.sum()), keep)
    assert low <= found.positives.sum() <= high
    assert found.negatives.sum() == 0


def test_an_absent_rest_leaves_nothing_unknown():
    part = dropped_positives(made(), keep=0.4, rest="absent")

    assert part.labels("train").complete()
    assert part.protocol["kept"]["unknown"] == 0


def test_an_absent_rest_is_refused_with_a_hierarchy():
    with pytest.raises(TagfillError, match="a dropped parent would be absent and its kept child present"):
        dropped_positives(made(hierarchical=True), rest="absent")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "two"}, "keep is 'two'; give a number from 0 to 1, or 'one'"),
        ({"keep": 75}, "keep is 75; give a number from 0 to 1"),
        ({"rest": "maybe"}, "rest is 'maybe'; give one of unknown, absent"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(TagfillError, match=message):
        dropped_positives(made(), **options)


def test_a_dropped_positive_of_a_validation_image_is_not_observed():
    data = made()
    unknown, absent = (dropped_positives(data, keep=0.4, rest=rest) for rest in ("unknown", "absent"))
    negatives = {
        (image, label) for image, labels in truth(data, "val").items() for label in labels if not labels[label]
    }

    assert observed(absent) == observed(unknown) | negatives
