from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protocols.cases import made
from reference import single_positive as reference
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, TagfillError
from tagfill.labels import LabelMatrix
from tagfill.protocols import single_positive
from tagfill.protocols.single_positive import divide, draw

OFFICIAL = made(sizes={"train": 50, "val": 20})  # as VOC and COCO come: the test labels are not public
COMPLETE = made(sizes={"train": 50, "val": 20, "test": 10})


def test_worked_example():
    labels = [[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 0]]
    assert draw(LabelMatrix.from_dense(np.array(labels, np.int8)), 1200).tolist() == [0, 1, 0, 3, 1]


@settings(max_examples=40, deadline=None)
@given(labels=arrays(np.int8, st.tuples(st.integers(1, 12), st.integers(1, 7)), elements=st.integers(0, 1)))
def test_the_draw_equals_the_published_one(labels):
    assert draw(LabelMatrix.from_dense(labels), 1200).tolist() == reference.draw(labels.tolist(), 1200)


def test_the_draw_goes_on_across_blocks_of_labels():
    labels = LabelMatrix.from_dense(np.random.default_rng(0).integers(0, 2, (4200, 3)).astype(np.int8))
    assert draw(labels, 1200).tolist() == reference.draw(labels.dense().tolist(), 1200)


@pytest.mark.parametrize(
    ("size", "first"),
    [(5717, [5, 6, 11, 15, 22]), (82081, [3, 4, 34, 37, 48]), (150000, [2, 4, 5, 7, 9])],
    ids=["VOC", "COCO", "NUS-WIDE"],
)
def test_published_validation_images(size, first):
    assert divide(size, 1200)[1][:5].tolist() == first


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(5717, (4574, 1143)), (82081, (65665, 16416)), (150000, (120000, 30000)), (5994, (4795, 1199))],
    ids=["VOC", "COCO", "NUS-WIDE", "CUB"],
)
def test_published_sizes(size, sizes):
    assert tuple(map(len, divide(size, 1200))) == sizes


@pytest.mark.parametrize("size", [1, 2, 3, 17, 40])
def test_the_split_equals_the_published_one(size):
    train, val = divide(size, 1200)
    assert (train.tolist(), val.tolist()) == reference.split(size, 1200)


def known(data: Dataset, split: str) -> np.ndarray:
    return data.labels(split).dense()


def observed_of(data: Dataset, split: str) -> list[int]:
    return reference.draw(known(data, split).tolist(), 1200)


def images_of(data: Dataset, split: str) -> list[str]:
    return data.names(data.split(split))


def test_training_images_keep_the_positive_that_was_drawn_and_nothing_else():
    part = single_positive(COMPLETE)
    drawn = observed_of(COMPLETE, "train")
    expected = np.full(known(COMPLETE, "train").shape, -1)
    for row, column in enumerate(drawn):
        if column >= 0:
            expected[row, column] = 1
    np.testing.assert_array_equal(known(part, "train"), expected)


def test_an_image_without_positives_has_no_label_at_all():
    part = single_positive(COMPLETE)
    empty = (known(COMPLETE, "train") == 1).sum(1) == 0
    assert empty.any()
    assert (known(part, "train")[empty] == -1).all()


@pytest.mark.parametrize("split", ["val", "test"])
def test_other_splits_keep_all_labels(split):
    np.testing.assert_array_equal(known(single_positive(COMPLETE), split), known(COMPLETE, split))


def test_a_test_split_that_is_there_is_kept():
    part = single_positive(COMPLETE)
    assert {name: images_of(part, name) for name in part.splits} == {
        name: images_of(COMPLETE, name) for name in COMPLETE.splits
    }


def test_without_a_test_split_train_is_divided_and_val_becomes_test():
    part = single_positive(OFFICIAL)
    train, val = reference.split(50, 1200)
    names = images_of(OFFICIAL, "train")
    assert images_of(part, "train") == [names[at] for at in train]
    assert images_of(part, "val") == [names[at] for at in val]
    assert images_of(part, "test") == images_of(OFFICIAL, "val")


def test_the_draw_comes_before_the_division():
    """Random numbers go to all official training images in their order, also to those held out later."""
    part, (train, _) = single_positive(OFFICIAL), reference.split(50, 1200)
    drawn = np.array(observed_of(OFFICIAL, "train"))[train]
    found = [int(np.argmax(row)) if (row == 1).any() else -1 for row in known(part, "train")]
    assert found == drawn.tolist()


def flagged(data: Dataset) -> set[tuple[str, str]]:
    return {(row["image"], row["label"]) for row in data.rows().to_pylist() if "observed" in (row["flags"] or [])}


@pytest.mark.parametrize("data", [OFFICIAL, COMPLETE], ids=["divided", "kept"])
def test_validation_labels_that_would_have_been_observed_are_flagged(data):
    part = single_positive(data)
    if data is OFFICIAL:
        names, drawn = images_of(data, "train"), observed_of(data, "train")
        chosen = reference.split(50, 1200)[1]
    else:
        names, drawn = images_of(data, "val"), observed_of(data, "val")
        chosen = list(range(20))
    expected = {(names[at], data.classes[drawn[at]]) for at in chosen if drawn[at] >= 0}
    assert flagged(part) == expected


def test_what_was_simulated_is_written_down():
    part = single_positive(COMPLETE, seed=7)
    assert (part.protocol["name"], part.protocol["seed"]) == ("single-positive", 7)


def test_another_seed_observes_other_labels():
    assert not np.array_equal(
        known(single_positive(COMPLETE), "train"), known(single_positive(COMPLETE, seed=1), "train")
    )


def test_incomplete_labels_are_refused():
    with pytest.raises(DatasetError, match="complete"):
        single_positive(single_positive(COMPLETE))


def test_a_seed_that_the_published_generator_does_not_take_is_refused():
    with pytest.raises(TagfillError, match=r"The seed is 4294967296; the published generator takes 4,294,967,295"):
        single_positive(made(), seed=2**32)
