from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protocols.cases import kept, made, truth
from reference import single_positive as reference
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, TagfillError
from tagfill.labels import LabelMatrix
from tagfill.protocols import k_positives, single_positive
from tagfill.protocols.single_positive import draw_published, split_validation

OFFICIAL = made(sizes={"train": 50, "val": 20})  # as VOC and COCO come: the test labels are not public
COMPLETE = made(sizes={"train": 50, "val": 20, "test": 10})


def draw(labels: LabelMatrix, seed: int) -> np.ndarray:
    """The observed class of each image, -1 without a positive."""
    observed = np.full(len(labels), -1)
    pairs = draw_published(labels, seed, num_pos=1, num_neg=0)
    observed[pairs.image] = pairs.label
    return observed


def test_worked_example():
    labels = [[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 0]]
    assert draw(LabelMatrix.from_dense(np.array(labels, np.int8)), 1200).tolist() == [0, 1, 0, 3, 1]


@settings(max_examples=40, deadline=None)
@given(labels=arrays(np.int8, st.tuples(st.integers(1, 12), st.integers(1, 7)), elements=st.integers(0, 1)))
def test_the_draw_equals_the_published_one(labels):
    assert draw(LabelMatrix.from_dense(labels), 1200).tolist() == reference.draw(labels.tolist(), 1200)


def test_the_draw_continues_across_blocks_of_labels():
    labels = LabelMatrix.from_dense(np.random.default_rng(0).integers(0, 2, (4200, 3)).astype(np.int8))
    assert draw(labels, 1200).tolist() == reference.draw(labels.dense().tolist(), 1200)


@pytest.mark.parametrize(
    ("size", "first"),
    [(5717, [5, 6, 11, 15, 22]), (82081, [3, 4, 34, 37, 48]), (150000, [2, 4, 5, 7, 9])],
    ids=["VOC", "COCO", "NUS-WIDE"],
)
def test_published_validation_images(size, first):
    assert split_validation(size, 1200)[1][:5].tolist() == first


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(5717, (4574, 1143)), (82081, (65665, 16416)), (150000, (120000, 30000)), (5994, (4795, 1199))],
    ids=["VOC", "COCO", "NUS-WIDE", "CUB"],
)
def test_published_sizes(size, sizes):
    assert tuple(map(len, split_validation(size, 1200))) == sizes


@pytest.mark.parametrize("size", [1, 2, 3, 17, 40])
def test_the_split_equals_the_published_one(size):
    train, val = split_validation(size, 1200)
    assert (train.tolist(), val.tolist()) == reference.split(size, 1200)


def known(data: Dataset, split: str) -> np.ndarray:
    return data.labels(split).dense()


def observed_of(data: Dataset, split: str) -> list[int]:
    return reference.draw(known(data, split).tolist(), 1200)


def images_of(data: Dataset, split: str) -> list[str]:
    return data.names(data.split(split))


def test_training_images_keep_only_the_drawn_positive():
    part = single_positive(COMPLETE)
    drawn = observed_of(COMPLETE, "train")
    expected = np.full(known(COMPLETE, "train").shape, -1)
    for row, column in enumerate(drawn):
        if column >= 0:
            expected[row, column] = 1
    np.testing.assert_array_equal(known(part, "train"), expected)


def test_an_image_without_positives_has_no_label():
    part = single_positive(COMPLETE)
    empty = (known(COMPLETE, "train") == 1).sum(1) == 0
    assert empty.any()
    assert (known(part, "train")[empty] == -1).all()


@pytest.mark.parametrize("split", ["val", "test"])
def test_other_splits_keep_all_labels(split):
    np.testing.assert_array_equal(known(single_positive(COMPLETE), split), known(COMPLETE, split))


def test_an_existing_test_split_is_kept():
    part = single_positive(COMPLETE)
    assert {name: images_of(part, name) for name in part.splits} == {
        name: images_of(COMPLETE, name) for name in COMPLETE.splits
    }


def test_without_a_test_split_train_is_split_and_val_becomes_test():
    part = single_positive(OFFICIAL)
    train, val = reference.split(50, 1200)
    names = images_of(OFFICIAL, "train")
    assert images_of(part, "train") == [names[at] for at in train]
    assert images_of(part, "val") == [names[at] for at in val]
    assert images_of(part, "test") == images_of(OFFICIAL, "val")


def test_the_draw_comes_before_the_split():
    """All official training images draw numbers in their order, including those held out later."""
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


def test_the_simulation_is_recorded():
    part = single_positive(COMPLETE, seed=7)
    assert (part.protocol["name"], part.protocol["seed"]) == ("single-positive", 7)


def test_another_seed_observes_other_labels():
    assert not np.array_equal(
        known(single_positive(COMPLETE), "train"), known(single_positive(COMPLETE, seed=1), "train")
    )


def test_incomplete_labels_are_refused():
    with pytest.raises(DatasetError, match="complete"):
        single_positive(single_positive(COMPLETE))


def test_a_seed_above_the_limit_of_the_published_generator_is_refused():
    with pytest.raises(TagfillError, match=r"The seed is 4294967296; .* accepts at most 4,294,967,295"):
        single_positive(made(), seed=2**32)


DATA = made(located=False)


def test_one_positive_is_the_single_positive_protocol():
    one, single = k_positives(DATA, num_pos=1), single_positive(DATA)

    assert kept(one) == kept(single)
    assert one.protocol["hash"] == single.protocol["hash"]


def test_the_single_positive_is_among_the_k():
    one, three = kept(single_positive(DATA)), kept(k_positives(DATA, num_pos=3, num_neg=2))

    assert all(one[image].items() <= three[image].items() for image in one)


def test_all_positives_and_negatives_are_all_labels():
    assert kept(k_positives(DATA, num_pos=-1, num_neg=-1)) == truth(DATA)


def test_a_dataset_without_test_images_is_split():
    part = k_positives(made(sizes={"train": 50, "val": 20}), num_pos=2)

    assert part.protocol["images"] == {"train": 40, "val": 10, "test": 20}


def test_points_locate_the_kept_positives_and_cost_more():
    data = made()
    plain, points = k_positives(data, num_neg=1), k_positives(data, num_neg=1, kind="SP")

    mine = [row for row in points.rows().to_pylist() if row["source"] == "k-positives"]
    assert kept(points) == kept(plain)
    assert {(row["kind"], row["present"], round(row["seconds"], 4)) for row in mine} == {
        ("point", True, 2.4),
        ("image", False, 1.0),
    }
    located = sum(row["kind"] == "point" for row in mine)
    assert points.protocol["kept"]["locations"] == located
    assert points.protocol["kept"]["seconds"] == pytest.approx(2.4 * located + len(mine) - located)


def test_all_instances_are_located_and_charged():
    part = k_positives(made(), num_pos=-1, kind="AB")

    boxes = [row for row in part.rows().to_pylist() if row["source"] == "k-positives"]
    pairs = {(row["image"], row["label"]) for row in boxes}
    assert len(boxes) > len(pairs)
    assert part.protocol["kept"]["seconds"] == pytest.approx(len(pairs) + 6 * len(boxes))


def test_points_of_a_split_dataset_are_on_its_training_images():
    part = k_positives(made(sizes={"train": 50, "val": 20}), kind="SP")

    located = {row["image"] for row in part.rows().to_pylist() if row["kind"] == "point"}
    assert located
    assert located <= set(part.names(part.split("train")))


def test_an_unknown_kind_is_refused():
    with pytest.raises(TagfillError, match="kind"):
        k_positives(DATA, kind="XP")


@pytest.mark.parametrize("option", ["num_pos", "num_neg"])
def test_a_negative_number_other_than_minus_one_is_refused(option):
    with pytest.raises(TagfillError, match=f"{option} is -2; give a number of labels per image, or -1 for all"):
        k_positives(DATA, **{option: -2})
