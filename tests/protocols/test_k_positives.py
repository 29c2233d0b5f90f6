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


def test_points_locate_the_positives_that_are_kept_and_cost_more():
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


def test_all_instances_are_located_and_charged_for():
    part = k_positives(made(), num_pos=-1, kind="AB")

    boxes = [row for row in part.rows().to_pylist() if row["source"] == "k-positives"]
    pairs = {(row["image"], row["label"]) for row in boxes}
    assert len(boxes) > len(pairs)
    assert part.protocol["kept"]["seconds"] == pytest.approx(len(pairs) + 6 * len(boxes))


def test_points_of_a_divided_dataset_are_on_its_training_images():
    part = k_positives(made(sizes={"train": 50, "val": 20}), kind="SP")

    located = {row["image"] for row in part.rows().to_pylist() if row["kind"] == "point"}
    assert located
    assert located <= set(part.names(part.split("train")))


def test_an_unknown_kind_is_refused():
    with pytest.raises(TagfillError, match="kind"):
        k_positives(DATA, kind="XP")


@pytest.mark.parametrize("option", ["num_pos", "num_neg"])
def test_a_negative_number_other_than_minus_one_is_refused(option):
    with pytest.raises(TagfillError, match=f"{option} is -2; give a number of labels an image, or -1 for all"):
        k_positives(DATA, **{option: -2})
