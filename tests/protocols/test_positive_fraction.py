from __future__ import annotations

import numpy as np
import pytest

from protocols.cases import kept, made, truth
from tagfill.errors import TagfillError
from tagfill.protocols import positive_fraction
from tagfill.protocols.positive_fraction import random_ratio

DATA = made(located=False)


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3, 0.9])
def test_exactly_the_fraction_of_positives_is_kept(fraction):
    part = positive_fraction(DATA, fraction=fraction)

    assert part.protocol["kept"]["positives"] == round(fraction * int(DATA.labels("train").positives.sum()))


def test_negatives_are_one_to_one_and_a_half_times_as_many():
    part = positive_fraction(DATA, fraction=0.2)

    counts, ratio = part.protocol["kept"], part.protocol["parameters"]["ratio"]
    assert 1 <= ratio < 1.5
    assert counts["negatives"] == round(ratio * counts["positives"])


def test_the_ratio_is_drawn_for_each_subset():
    ratios = [random_ratio(seed, fraction) for seed in range(20) for fraction in (0.05, 0.5)]

    assert len(set(ratios)) == len(ratios)
    assert 1.15 < np.mean(ratios) < 1.35


def test_negatives_belong_to_images_that_keep_a_positive():
    found = kept(positive_fraction(DATA, fraction=0.1))

    assert all(1 in labels.values() for labels in found.values() if labels)


def test_a_fraction_of_one_keeps_all_labels():
    assert kept(positive_fraction(DATA, fraction=1)) == truth(DATA)


def test_positives_of_a_smaller_fraction_are_among_those_of_a_larger_one():
    some, more = (kept(positive_fraction(DATA, fraction=fraction, ratio=0)) for fraction in (0.1, 0.3))

    assert all(some[image].items() <= more[image].items() for image in some)


def test_held_out_images_become_the_validation_split():
    data = made(sizes={"train": 100, "val": 20}, located=False)

    part = positive_fraction(data, held_out=30)

    assert part.protocol["images"] == {"train": 70, "val": 30, "test": 20}
    assert part.labels("val").complete()
    assert truth(part, "test") == truth(data, "val")


def test_held_out_images_have_the_same_distribution_of_labels():
    data = made(sizes={"train": 400}, located=False)

    part = positive_fraction(data, fraction=1, held_out=100)

    expected = data.labels("train").positives / 4
    assert np.abs(part.labels("val").positives - expected).max() <= 1.5


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (DATA, {"held_out": 3}, "made already has the splits val and test"),
        (made(sizes={"train": 9}), {"held_out": 9}, "held_out is 9; give a number below 9"),
        (DATA, {"ratio": -1.0}, "ratio is -1.0; give the number of negatives per positive"),
        (DATA, {"fraction": 5}, "fraction is 5; give a number from 0 to 1"),
    ],
)
def test_invalid_options_are_refused(data, options, message):
    with pytest.raises(TagfillError, match=message):
        positive_fraction(data, **options)
