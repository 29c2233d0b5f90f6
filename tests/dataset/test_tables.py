from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset.cases import dataset, row
from tagfill.dataset import IMAGES_SCHEMA, SCHEMA, Dataset, tables
from tagfill.errors import DatasetError


def opened_with(folder, columns):
    """A dataset folder whose annotations are this table."""
    dataset(row()).save(folder)
    pq.write_table(pa.table(columns), folder / "annotations.parquet")
    return Dataset.open(folder)


GOOD = {"image": ["a.jpg"], "label": ["cat"], "present": [True]}


def test_a_table_may_have_only_the_columns_that_matter(tmp_path):
    rows = opened_with(tmp_path, GOOD).rows()
    assert rows.schema == SCHEMA
    assert rows["kind"].to_pylist() == ["image"]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"image": ["a.jpg"], "label": ["cat"]}, "lacks present"),
        ({**GOOD, "confidence": [0.5]}, "has unknown confidence"),
        ({**GOOD, "label": [7]}, "column 'label' holds int64, and string is expected"),
        ({**GOOD, "present": [-1]}, "column 'present' holds int64, and bool is expected"),
        ({**GOOD, "flags": ["crowd"]}, "column 'flags' holds string"),
        ({**GOOD, "time": ["yesterday"]}, "column 'time' holds string"),
    ],
)
def test_other_columns_are_refused_when_the_folder_is_opened(tmp_path, columns, sentence):
    with pytest.raises(DatasetError, match=sentence) as error:
        opened_with(tmp_path, columns)
    assert str(tmp_path / "annotations.parquet") in str(error.value)


def test_types_of_the_same_kind_are_converted(tmp_path):
    columns = {
        "image": pa.array(["a.jpg"], pa.large_string()),
        "label": pa.array(["cat"]).dictionary_encode(),
        "present": pa.array([None], pa.null()),
        "x": pa.array([0.5], pa.float64()),
        "y": pa.array([1]),
        "time": pa.array([3], pa.timestamp("s")),
        "flags": pa.array([["crowd"]], pa.large_list(pa.string())),
    }
    record = opened_with(tmp_path, columns).rows().to_pylist()[0]
    assert (record["label"], record["present"], record["x"], record["y"]) == ("cat", None, 0.5, 1.0)
    assert record["time"].timestamp() == 3


def test_a_time_that_is_too_fine_is_refused_rather_than_cut_off(tmp_path):
    data = opened_with(tmp_path, {**GOOD, "time": pa.array([1], pa.timestamp("ns", tz="UTC"))})
    with pytest.raises(DatasetError, match=r"column 'time'.*would lose data"):
        data.rows()


@pytest.mark.parametrize("table", ["annotations", "images"])
def test_a_damaged_file_is_one_sentence(tmp_path, table):
    dataset(row()).save(tmp_path)
    path = tmp_path / f"{table}.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=rf"{table}\.parquet is damaged or not a table: [^\n]+\.$"):
        Dataset.open(tmp_path)


def test_damage_inside_a_file_is_found_when_its_rows_are_read(tmp_path):
    data = dataset(*[row(image=f"{number:06d}.jpg") for number in range(5000)]).save(tmp_path)
    path = tmp_path / "annotations.parquet"
    content = bytearray(path.read_bytes())
    content[4:4000] = np.random.default_rng(0).bytes(3996)
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="is damaged or not a table"):
        data.rows()


def test_a_table_in_memory_is_checked_too():
    data = dataset(row()).replace(annotations=pa.table({**GOOD, "presence": [True]}))
    with pytest.raises(DatasetError, match=r"the annotations of small has the wrong columns.*unknown presence"):
        data.labels()


def test_wrong_columns_of_the_images_are_named(tmp_path):
    dataset(row()).save(tmp_path)
    pq.write_table(pa.table({"image": ["a.jpg"], "set": ["train"]}), tmp_path / "images.parquet")
    with pytest.raises(DatasetError, match="lacks split and has unknown set; expected are image, split, width, height"):
        Dataset.open(tmp_path)


def test_batches_have_the_schema_whatever_the_row_groups(tmp_path):
    path = tmp_path / "images.parquet"
    names = [f"{number}.jpg" for number in range(1000)]
    pq.write_table(pa.table({"image": names, "split": ["train"] * 1000}), path, row_group_size=37)
    found = tables.read_table(path, IMAGES_SCHEMA)
    assert found["image"].to_pylist() == names
    assert found["image"].num_chunks == 1
