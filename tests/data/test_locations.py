from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.cases import scenes
from dataset.cases import at, dataset, image, row
from tagfill.data import Locations
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError

CLASSES = ("cat", "dog", "animal")


def point(label: str = "cat", x: float = 0.25, y: float = 0.5, **columns: Any) -> dict[str, Any]:
    return row(label, kind="point", x=x, y=y, **columns)


def box(label: str = "cat", **columns: Any) -> dict[str, Any]:
    return row(label, **{"kind": "box", "x": 0.5, "y": 0.5, "w": 0.5, "h": 0.25, **columns})


def of(data: Dataset, index: list[int], split: str = "train") -> list[tuple[int, str, list[float]]]:
    marks = Locations.read(data, split).of(np.array(index))
    names = [data.classes[label] for label in marks.label]
    return list(zip(marks.image.tolist(), names, marks.box.tolist(), strict=True))


def test_points_and_boxes_of_chosen_images_in_their_order():
    two = [image("a.jpg"), image("b.jpg")]
    data = dataset(point(), box("dog", image="b.jpg"), point("dog", image="b.jpg"), row("animal"), images=two)
    assert of(data, [1, 0]) == [
        (0, "dog", [0.5, 0.5, 0.5, 0.25]),
        (0, "dog", [0.25, 0.5, 0.0, 0.0]),
        (1, "cat", [0.25, 0.5, 0.0, 0.0]),
    ]
    assert of(data, []) == []


def test_a_mask_has_its_run_lengths():
    data = dataset(box(kind="mask", rle=b"22", rle_height=2, rle_width=2), point("dog"))
    assert Locations.read(data, "train").of(np.array([0])).masks == ((b"22", 2, 2), None)


def test_image_rows_and_denied_regions_are_not_locations():
    assert of(dataset(row("cat"), box("dog", present=False), box("animal", present=None)), [0]) == []


def test_other_splits_are_left_out():
    data = dataset(point(), point("dog", image="b.jpg"), images=[image("a.jpg"), image("b.jpg", "val")])
    assert [label for _, label, _ in of(data, [0])] == ["cat"]
    assert [label for _, label, _ in of(data, [0], "val")] == ["dog"]


def test_a_newer_denial_removes_the_location():
    data = dataset(point(time=at(1)), row("cat", present=False, time=at(2)))
    assert of(data, [0]) == []


def test_a_newer_location_supersedes_an_older_one():
    data = dataset(point(x=0.1, time=at(1)), point(x=0.75, time=at(2)), point(x=0.5))
    assert [place[0] for _, _, place in of(data, [0])] == [0.75]


def test_a_newer_row_that_only_confirms_keeps_the_locations():
    data = dataset(point(x=0.25, time=at(1)), row("cat", time=at(2)))
    assert [place[0] for _, _, place in of(data, [0])] == [0.25]


def test_a_label_that_was_denied_and_then_confirmed_has_no_location():
    data = dataset(point(time=at(1)), row("cat", present=False, time=at(2)), row("cat", time=at(3)))
    assert of(data, [0]) == []


def test_rows_of_the_same_time_all_count():
    data = dataset(point(x=0.25, time=at(1)), point(x=0.75, time=at(1)), row("cat", time=at(1)))
    assert [place[0] for _, _, place in of(data, [0])] == [0.25, 0.75]


def test_a_newer_row_about_a_region_supersedes_nothing():
    data = dataset(point(time=at(1)), box(present=False, time=at(2)))
    assert len(of(data, [0])) == 1


def test_a_location_without_coordinates_is_an_error_that_names_its_row():
    with pytest.raises(DatasetError, match="row 1: a location needs x and y"):
        of(dataset(row("dog"), row("cat", kind="box", x=0.5, y=0.5)), [0])


def test_a_split_without_locations():
    assert len(Locations.read(dataset(row("cat")), "train")) == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(CLASSES[:2]),
            st.sampled_from(["a.jpg", "b.jpg"]),
            st.sampled_from([True, True, False, None]),
            st.sampled_from(["image", "point", "box"]),
            st.sampled_from([None, 1, 2]),
        ),
        max_size=8,
    )
)
def test_equals_a_search_through_all_rows(rows):
    """In the order of image, class and row: what is present, and neither moved, denied nor doubted since."""
    records = [
        row(label, present, name, kind=kind, time=None if time is None else at(time))
        | ({} if kind == "image" else {"x": number / 16, "y": 0.5, "w": 0.25, "h": 0.25})
        for number, (label, name, present, kind, time) in enumerate(rows)
    ]
    data = dataset(*records, images=[image("a.jpg"), image("b.jpg")], classes=CLASSES).replace(conflict="majority")
    labels, expected = data.labels("train").dense(), []
    for name, number in (("a.jpg", 0), ("b.jpg", 1)):
        for label in CLASSES[:2]:
            about = [r for r in records if (r["image"], r["label"]) == (name, label)]
            about = [r for r in about if r["kind"] == "image" or r["present"] is not False]
            decisive = [r for r in about if r["kind"] != "image" or r["present"] is not True]
            newest = max((r["time"] or at(-1) for r in decisive), default=None)
            if labels[number, CLASSES.index(label)] == 1:
                live = [r for r in about if (r["time"] or at(-1)) == newest and r["present"] and r["kind"] != "image"]
                expected += [(number, label, r["x"]) for r in live]
    assert [(i, label, place[0]) for i, label, place in of(data, [0, 1])] == expected


def test_scenes_have_a_mask_for_every_present_label():
    data = scenes()
    locations = Locations.read(data, "train")
    marks, labels = locations.of(np.arange(len(data.split("train")))), data.labels("train").dense()
    found = np.zeros(labels.shape, dtype=bool)
    found[marks.image, marks.label] = True
    assert np.array_equal(found, labels == 1)
    assert all(mask is not None for mask in marks.masks)
    assert locations.nbytes < 400 * len(locations)
