from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset.cases import at, dataset, image, row, varied
from tagfill.dataset import SCHEMA, from_records
from tagfill.dataset.identity import RowsHash

RECORD = {
    "image": "a.jpg",
    "label": "cat",
    "present": True,
    "kind": "mask",
    "x": 0.5,
    "y": 0.25,
    "w": 0.125,
    "h": 0.1,
    "rle": b"0d0",
    "rle_height": 6,
    "rle_width": 8,
    "flags": ["crowd"],
    "source": "me",
    "time": at(0),
    "seconds": 1.5,
}
OTHERS = {
    "image": ["b.jpg", ""],
    "label": ["dog", ""],
    "present": [False, None],
    "kind": ["box", "image"],
    "x": [np.nextafter(np.float32(0.5), np.float32(1)), 0.0, float("nan"), None],
    "y": [None, -1.0],
    "w": [None, 1.0],
    "h": [None, 0.2],
    "rle": [None, b"", b"0d1"],
    "rle_height": [None, 0, -1, 8],
    "rle_width": [None, 0, -1, 6],
    "flags": [None, [], ["crowd", "crowd"], [""], ["crowd,difficult"], [None]],
    "source": [None, "", "Me"],
    "time": [None, at(0) + timedelta(microseconds=1), at(0).replace(year=1960)],
    "seconds": [None, 0.0, 1.25],
}


def digest(*batches: pa.Table | pa.RecordBatch) -> str:
    rows = RowsHash()
    for batch in batches:
        rows.update(batch)
    return rows.hexdigest()


@pytest.mark.parametrize("column", SCHEMA.names)
def test_any_change_of_a_value_changes_the_hash(column):
    tables = [from_records([{**RECORD, column: value}]) for value in (RECORD[column], *OTHERS[column])]
    assert len({digest(table) for table in tables}) == len(tables)


def test_a_value_that_moves_to_another_column_changes_the_hash():
    first = from_records([{**RECORD, "x": 0.5, "y": None}])
    assert digest(first) != digest(from_records([{**RECORD, "x": None, "y": 0.5}]))


@pytest.mark.parametrize("time", [-2, -1, 0, 1])
def test_a_time_before_1970_differs_from_no_time(time):
    column = pa.array([time], pa.timestamp("us", tz="UTC"))
    assert digest(pa.table({"time": column})) != digest(pa.table({"time": pa.nulls(1, column.type)}))


def test_the_order_of_rows_and_columns_does_not_matter():
    rows = varied().rows()
    backwards = rows.take(list(range(rows.num_rows))[::-1])
    assert digest(rows) == digest(backwards) == digest(rows.select(SCHEMA.names[::-1]))


def test_batch_sizes_do_not_matter():
    rows = varied().rows()
    assert digest(rows) == digest(*[rows.slice(number, 1) for number in range(rows.num_rows)])
    assert digest(rows) == digest(*rows.slice(0, 3).to_batches(), *rows.slice(3).to_batches(), rows.slice(0, 0))


def test_repeated_rows_change_the_hash():
    rows = from_records([RECORD])
    assert len({digest(), digest(rows), digest(rows, rows), digest(rows, rows, rows)}) == 4


def test_dictionary_encoding_does_not_matter():
    rows = varied().rows()
    for name in ("image", "label", "kind", "source"):
        at_column = rows.schema.get_field_index(name)
        coded = rows.set_column(at_column, name, rows[name].dictionary_encode())
        assert digest(coded) == digest(rows)


def test_zeros_are_equal_and_nans_are_equal():
    def with_x(value):
        return from_records([{**RECORD, "x": value}])

    assert digest(with_x(-0.0)) == digest(with_x(0.0))
    odd = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert digest(with_x(odd[0])) == digest(with_x(float("nan")))


def test_files_of_other_bytes_and_the_same_rows_have_the_same_identities(tmp_path):
    data = varied()
    first = data.save(tmp_path / "first")
    pq.write_table(data.rows(), tmp_path / "second.parquet", row_group_size=2, use_dictionary=False, compression="none")
    second = data.replace(annotations=tmp_path / "second.parquet")
    text = data.save(tmp_path / "text", tables="csv")
    assert data.identities == first.identities == second.identities == text.identities


def test_each_identity_depends_on_its_own_content():
    base = dataset(row("cat"))
    changes = {
        "images": dataset(row("cat"), images=[image("a.jpg"), image("z.jpg"), image("c.jpg", "val")]),
        "classes": dataset(row("cat"), classes=("dog", "cat")),
        "labels": dataset(row("cat", False)),
    }
    for changed, other in changes.items():
        same = [name for name in base.identities if base.identities[name] == other.identities[name]]
        assert same == [name for name in base.identities if name != changed]


@pytest.mark.parametrize(
    "other",
    [
        dataset(row("cat"), images=[image("a.jpg"), image("b.jpg", "val"), image("c.jpg", "val")]),
        dataset(row("cat"), hierarchy=(("cat", "animal"),)),
        dataset(row("cat"), conflict="majority"),
        dataset(row("cat"), row("cat")),
    ],
    ids=["split", "hierarchy", "conflict", "repeated row"],
)
def test_the_identity_of_labels_includes_hierarchy_and_conflicts(other):
    assert other.identities["labels"] != dataset(row("cat")).identities["labels"]
