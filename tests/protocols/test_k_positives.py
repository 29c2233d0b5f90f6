from __future__ import annotations

import pytest

from protocols.cases import kept, made, truth
from tagfill.errors import TagfillError
from tagfill.protocols import k_positives, single_positive

DATA = made(located=False)


def test_one_positive_is_the_single_positive_protocol():
    one, single = k_positives(DATA, num_pos=1), single_positive(DATA)

    assert kept(one) == kept(single)
    assert one.protocol["hash"] == single.protocol["hash"]


def test_the_single_positive_is_among_the_k():
    one, three = kept(single_positive(DATA)), kept(k_positives(DATA, num_pos=3, num_neg=2))

    assert all(one[image].items() <= three[image].items() for image in one)


def test_all_positives_and_all_negatives_are_everything():
    assert kept(k_positives(DATA, num_pos=-1, num_neg=-1)) == truth(DATA)


def test_a_dataset_without_test_images_is_divided():
    part = k_positives(made(sizes={"train": 50, "val": 20}), num_pos=2)

    assert part.protocol["images"] == {"train": 40, "val": 10, "test": 20}


@pytest.mark.parametrize("option", ["num_pos", "num_neg"])
def test_a_negative_number_other_than_minus_one_is_refused(option):
    with pytest.raises(TagfillError, match=f"{option} is -2; give a number of labels an image, or -1 for all"):
        k_positives(DATA, **{option: -2})
