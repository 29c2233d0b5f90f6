from __future__ import annotations

from pathlib import Path

import numpy as np

from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.protocols import instances

IMAGES = from_records([{"image": name, "split": "train"} for name in "ab"], IMAGES_SCHEMA)
ALL = (0, 1, 2, 3)


def dataset(*rows: dict[str, object]) -> Dataset:
    filled = [{"label": "cat", "present": True, "w": 0.1, "h": 0.1, "kind": "box", "y": 0.5, **row} for row in rows]
    return Dataset("d", Path("d"), ("cat", "dog"), IMAGES, from_records(filled))


def places(data: Dataset, *, boxes: bool = False, wanted: tuple[int, ...] = ALL) -> dict[int, list[float]]:
    found = instances.find(data, data.split("train"), boxes=boxes, wanted=np.array(wanted))
    x = [round(value, 3) for value in found.rows["x"].to_pylist()]
    return {
        int(key): x[start:stop]
        for key, start, stop in zip(found.pairs, found.starts[:-1], found.starts[1:], strict=True)
    }


def test_instances_are_grouped_by_pair_and_ordered_by_place():
    data = dataset({"image": "b", "x": 0.5}, {"image": "a", "x": 0.9}, {"image": "b", "x": 0.1})

    assert places(data) == {0: [0.9], 2: [0.1, 0.5]}


def test_a_crowd_counts_only_where_there_is_nothing_else():
    crowd = {"flags": ["crowd"]}
    data = dataset({"image": "a", "x": 0.1, **crowd}, {"image": "a", "x": 0.2}, {"image": "b", "x": 0.3, **crowd})

    assert places(data) == {0: [0.2], 2: [0.3]}


def test_regions_without_the_label_and_image_labels_are_no_instances():
    data = dataset({"image": "a", "x": 0.1, "present": False}, {"image": "b", "kind": "image"})

    assert places(data) == {}


def test_a_point_has_no_extent():
    data = dataset({"image": "a", "x": 0.1, "kind": "point"}, {"image": "b", "x": 0.3, "kind": "mask"})

    assert places(data) == {0: [0.1], 2: [0.3]}
    assert places(data, boxes=True) == {2: [0.3]}


def test_only_wanted_pairs_are_brought():
    data = dataset({"image": "a", "x": 0.1}, {"image": "b", "x": 0.2}, {"image": "b", "x": 0.3, "label": "dog"})

    assert places(data, wanted=(1, 3)) == {3: [0.3]}


def test_counts_of_pairs():
    data = dataset({"image": "b", "x": 0.1}, {"image": "b", "x": 0.2})

    found = instances.find(data, data.split("train"), boxes=False, wanted=np.array(ALL))

    assert found.counts(np.array([0, 2, 3])).tolist() == [0, 2, 0]
