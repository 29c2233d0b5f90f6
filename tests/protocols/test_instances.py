from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from reference.rle import decode
from tagfill import scenes
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records, masks
from tagfill.errors import DatasetError
from tagfill.protocols import budget, instances
from tagfill.protocols.instances import random_pixel

IMAGES = from_records([{"image": name, "split": "train"} for name in "ab"], IMAGES_SCHEMA)
ALL = (0, 1, 2, 3)


def dataset(*rows: dict[str, object]) -> Dataset:
    filled = [{"label": "cat", "present": True, "w": 0.1, "h": 0.1, "kind": "box", "y": 0.5, **row} for row in rows]
    return Dataset("d", Path("d"), ("cat", "dog"), IMAGES, from_records(filled))


def places(data: Dataset, *, boxes: bool = False, wanted: tuple[int, ...] = ALL) -> dict[int, list[float]]:
    found = instances.find_instances(data, data.split("train"), boxes=boxes, wanted=np.array(wanted))
    x = [round(value, 3) for value in found.rows["x"].to_pylist()]
    return {
        int(key): x[start:stop]
        for key, start, stop in zip(found.pairs, found.starts[:-1], found.starts[1:], strict=True)
    }


def test_instances_are_grouped_by_pair_and_ordered_by_place():
    data = dataset({"image": "b", "x": 0.5}, {"image": "a", "x": 0.9}, {"image": "b", "x": 0.1})

    assert places(data) == {0: [0.9], 2: [0.1, 0.5]}


def test_a_crowd_counts_only_if_there_is_nothing_else():
    crowd = {"flags": ["crowd"]}
    data = dataset({"image": "a", "x": 0.1, **crowd}, {"image": "a", "x": 0.2}, {"image": "b", "x": 0.3, **crowd})

    assert places(data) == {0: [0.2], 2: [0.3]}


def test_regions_without_the_label_and_image_labels_are_no_instances():
    data = dataset({"image": "a", "x": 0.1, "present": False}, {"image": "b", "kind": "image"})

    assert places(data) == {}


def test_a_point_has_no_size():
    data = dataset({"image": "a", "x": 0.1, "kind": "point"}, {"image": "b", "x": 0.3, "kind": "mask"})

    assert places(data) == {0: [0.1], 2: [0.3]}
    assert places(data, boxes=True) == {2: [0.3]}


def test_only_wanted_pairs_are_read():
    data = dataset({"image": "a", "x": 0.1}, {"image": "b", "x": 0.2}, {"image": "b", "x": 0.3, "label": "dog"})

    assert places(data, wanted=(1, 3)) == {3: [0.3]}


def test_counts_of_pairs():
    data = dataset({"image": "b", "x": 0.1}, {"image": "b", "x": 0.2})

    found = instances.find_instances(data, data.split("train"), boxes=False, wanted=np.array(ALL))

    assert found.counts(np.array([0, 2, 3])).tolist() == [0, 2, 0]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    return scenes.make(tmp_path_factory.mktemp("scenes"), train=40, val=2, test=2, size=64)


def masks_of(data: Dataset) -> dict[tuple[str, str], list[dict[str, object]]]:
    found: dict[tuple[str, str], list[dict[str, object]]] = {}
    for row in data.rows().to_pylist():
        if row["kind"] == "mask":
            found.setdefault((row["image"], row["label"]), []).append(row)
    return found


def points(part: Dataset) -> list[dict[str, object]]:
    return [row for row in part.rows().to_pylist() if row["kind"] == "point"]


def in_mask(point: dict[str, object], mask: dict[str, object]) -> bool:
    height, width = mask["rle_height"], mask["rle_width"]
    pixels = decode(mask["rle"], height, width)
    return bool(pixels[int(point["y"] * height)][int(point["x"] * width)])


def in_box(point: dict[str, object], box: dict[str, object]) -> bool:
    across, down = abs(point["x"] - box["x"]), abs(point["y"] - box["y"])
    return across <= box["w"] / 2 + 1e-6 and down <= box["h"] / 2 + 1e-6


@pytest.mark.parametrize("kind", ["SP", "AP"])
@pytest.mark.parametrize("point", ["auto", "mask"])
def test_points_lie_in_masks(data, kind, point):
    found = masks_of(data)

    drawn = points(budget(data, percent=300, kind=kind, point=point))

    assert drawn
    assert all(any(in_mask(row, mask) for mask in found[row["image"], row["label"]]) for row in drawn)


def test_points_lie_in_boxes(data):
    found = masks_of(data)

    drawn = points(budget(data, percent=300, kind="SP", point="box"))

    assert all(any(in_box(row, box) for box in found[row["image"], row["label"]]) for row in drawn)


def test_every_instance_gets_its_point(data):
    found = masks_of(data)

    drawn = points(budget(data, percent=1000, kind="AP"))

    training = {pair: masks for pair, masks in found.items() if "/train/" in pair[0]}
    for pair, found_masks in training.items():
        mine = [row for row in drawn if (row["image"], row["label"]) == pair]
        assert len(mine) == len(found_masks)
        assert all(any(in_mask(row, mask) for row in mine) for mask in found_masks)


def table(**columns: object) -> pa.Table:
    size = 4000
    return from_records([{"image": "a", "label": "b", "present": True, **columns}] * size)


def place(point: str, **columns: object) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = table(**columns)
    return instances.place_points(rows, rng.random(rows.num_rows), rng.random(rows.num_rows), point)


BOX = {"kind": "box", "x": 0.5, "y": 0.25, "w": 0.4, "h": 0.2}


@pytest.mark.parametrize(("axis", "middle"), [(0, 0.5), (1, 0.25)])
@pytest.mark.parametrize("point", ["center", "auto"])
def test_points_around_the_center_are_normal(axis, middle, point):
    found = place(point, **BOX)[:, axis]

    assert stats.kstest(found, stats.norm(middle, 0.02).cdf).pvalue > 0.001


@pytest.mark.parametrize(("axis", "low", "size"), [(0, 0.3, 0.4), (1, 0.15, 0.2)])
def test_points_of_a_box_are_uniform(axis, low, size):
    found = place("box", **BOX)[:, axis]

    assert stats.kstest(found, stats.uniform(low, size).cdf).pvalue > 0.001


@pytest.mark.parametrize("point", ["box", "center"])
def test_points_stay_in_the_image(point):
    found = place(point, kind="box", x=0.0, y=1.0, w=0.4, h=0.4)

    assert found.min() == 0.0
    assert found.max() == 1.0


def test_pixels_of_a_mask_are_equally_likely():
    mask = {"kind": "mask", "x": 0.5, "y": 0.5, "w": 1.0, "h": 1.0, "rle": b"121", "rle_height": 2, "rle_width": 2}

    found, counts = np.unique(place("mask", **mask), axis=0, return_counts=True)

    assert found.tolist() == [[0.25, 0.75], [0.75, 0.25]]
    assert stats.binomtest(int(counts[0]), int(counts.sum())).pvalue > 0.001


def test_a_point_is_unchanged():
    assert np.unique(place("auto", kind="point", x=0.25, y=0.75), axis=0).tolist() == [[0.25, 0.75]]


def test_the_point_of_an_empty_mask_is_near_its_center():
    mask = {"kind": "mask", "x": 0.5, "y": 0.5, "w": 0.0, "h": 0.0, "rle": b"4", "rle_height": 2, "rle_width": 2}

    assert np.abs(place("mask", **mask) - 0.5).max() < 0.1


def test_missing_masks_are_refused():
    with pytest.raises(DatasetError, match="placed on masks, but some instances have only a box"):
        place("mask", **BOX)


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_uniform_numbers_reach_each_pixel_of_a_mask_once(mask):
    count, rle = int(mask.sum()), masks.encode(mask)

    found = [random_pixel(rle, mask.shape[0], (index + 0.5) / count) for index in range(count)]

    assert set(found) == {(int(row), int(column)) for row, column in np.argwhere(mask)}
    assert len(set(found)) == count


def test_an_empty_mask_has_no_pixel():
    assert random_pixel(masks.encode(np.zeros((3, 3), dtype=bool)), 3, 0.5) is None
    assert random_pixel(b"", 3, 0.5) is None


def test_damaged_run_lengths_are_refused_in_one_sentence():
    with pytest.raises(DatasetError, match="run lengths of a mask end in the middle of a number; 'tagfill inspect'"):
        random_pixel(b"2P", 3, 0.5)
