"""Datasets from plain values, and rows that are added to one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import tagfill
from tagfill.errors import TagfillError

IMAGES = [{"image": "a.jpg", "split": "train", "width": 4, "height": 3}, {"image": "b.jpg", "split": "val"}]
ROWS = [
    {"image": "a.jpg", "label": "spoon", "present": True, "source": "ann", "time": datetime(2024, 5, 2, tzinfo=UTC)},
    {"image": "b.jpg", "label": "cup", "present": None},
    {"image": "b.jpg", "label": "spoon", "present": True, "kind": "point", "x": 0.25, "y": 0.5},
]


def shop(rows=ROWS, images=IMAGES):
    return tagfill.Dataset.from_records("shop", "photos", ["cup", "spoon"], images, rows)


def test_records_become_labels():
    data = shop()
    assert data.labels().dense().tolist() == [[-1, 1], [-1, 1]]
    assert {name: rows.tolist() for name, rows in data.splits.items()} == {"train": [0], "val": [1]}
    assert data.images["width"].to_pylist() == [4, None]
    assert data.rows()["kind"].to_pylist() == ["image", "image", "point"]


def test_records_survive_saving(tmp_path):
    assert shop().save(tmp_path / "shop").identities == shop().identities


def test_a_dataset_may_have_no_row_at_all():
    assert shop(rows=[]).labels().dense().tolist() == [[-1, -1], [-1, -1]]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"image": "a.jpg", "lable": "cup", "present": True}, "no column 'lable'; did you mean 'label'"),
        ({"image": "a.jpg", "label": "cup"}, "Record 1 has no 'present'"),
    ],
)
def test_a_record_with_other_columns_is_refused(record, said):
    with pytest.raises(TagfillError, match=said):
        shop(rows=[ROWS[0], record])


def test_an_image_without_a_split_is_refused():
    with pytest.raises(TagfillError, match="Record 0 has no 'split'"):
        shop(images=[{"image": "a.jpg"}])


def test_added_rows_are_seen_by_the_copy_alone(tmp_path):
    data = shop().save(tmp_path / "shop")
    more = data.with_records([{"image": "a.jpg", "label": "cup", "present": False, "source": "bea"}])
    assert more.labels().dense().tolist() == [[0, 1], [-1, 1]]
    assert data.labels().dense().tolist() == [[-1, 1], [-1, 1]]
    assert more.folder is None
    assert more.identities["images"] == data.identities["images"]


def test_a_newer_added_row_decides():
    newer = {"image": "a.jpg", "label": "spoon", "present": False, "time": datetime(2024, 5, 3, tzinfo=UTC)}
    assert shop().with_records([newer]).labels("train").dense().tolist() == [[-1, 0]]
    older = {**newer, "time": datetime(2024, 5, 1, tzinfo=UTC)}
    assert shop().with_records([older]).labels("train").dense().tolist() == [[-1, 1]]
