from __future__ import annotations

import gc
import io
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tagfill
from dataset.cases import CLASSES, dataset, row, varied
from tagfill.dataset import IMAGES_SCHEMA, SCHEMA, Dataset, from_records, tables
from tagfill.dataset.identity import RowsHash
from tagfill.dataset.tables import RowSpool
from tagfill.errors import DatasetError, TagfillError


def opened_with(folder, columns):
    """A dataset folder whose annotations are this table."""
    dataset(row()).save(folder)
    pq.write_table(pa.table(columns), folder / "annotations.parquet")
    description = (folder / "dataset.yaml").read_text()
    (folder / "dataset.yaml").write_text(description[: description.index("checksums:")])
    return Dataset.open(folder)


GOOD = {"image": ["a.jpg"], "label": ["cat"], "present": [True]}


def test_a_table_may_have_only_the_required_columns(tmp_path):
    rows = opened_with(tmp_path, GOOD).rows()
    assert rows.schema == SCHEMA
    assert rows["kind"].to_pylist() == ["image"]


@pytest.mark.parametrize("tables", ["parquet", "csv", "memory"])
def test_columns_that_a_table_lacks_still_have_its_rows(tmp_path, tables):
    found = dataset(row()).save(tmp_path, tables="csv") if tables == "csv" else opened_with(tmp_path, GOOD)
    if tables == "csv":
        (tmp_path / "annotations.csv").write_text("image,label,present\na.jpg,cat,true\n")
    if tables == "memory":
        found = found.replace(annotations=pa.table(GOOD))
    assert [batch["kind"].to_pylist() for batch in found.scan(["kind", "seconds"])] == [["image"]]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"image": ["a.jpg"], "label": ["cat"]}, "lacks present"),
        ({**GOOD, "confidence": [0.5]}, "has unknown confidence"),
        ({**GOOD, "label": [7]}, "column 'label' has type int64, but string is expected"),
        ({**GOOD, "present": [-1]}, "column 'present' has type int64, but bool is expected"),
        ({**GOOD, "flags": ["crowd"]}, "column 'flags' has type string"),
        ({**GOOD, "time": ["yesterday"]}, "column 'time' has type string"),
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
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, table):
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
    with pytest.raises(DatasetError, match="differs from its checksum"):
        data.rows()
    with pytest.raises(DatasetError, match="is damaged or not a table"):
        data.replace(checksums={}).rows()


def test_a_table_in_memory_is_checked_too():
    data = dataset(row()).replace(annotations=pa.table({**GOOD, "presence": [True]}))
    with pytest.raises(DatasetError, match=r"the annotations of small has the wrong columns.*unknown presence"):
        data.labels()


def test_wrong_columns_of_the_images_are_named(tmp_path):
    dataset(row()).save(tmp_path)
    pq.write_table(pa.table({"image": ["a.jpg"], "set": ["train"]}), tmp_path / "images.parquet")
    with pytest.raises(DatasetError, match="lacks split and has unknown set; expected are image, split, width, height"):
        Dataset.open(tmp_path)


def test_batches_have_the_schema_for_any_row_groups(tmp_path):
    path = tmp_path / "images.parquet"
    names = [f"{number}.jpg" for number in range(1000)]
    pq.write_table(pa.table({"image": names, "split": ["train"] * 1000}), path, row_group_size=37)
    found = tables.read_table(path, IMAGES_SCHEMA)
    assert found["image"].to_pylist() == names
    assert found["image"].num_chunks == 1


text = st.text(st.characters(codec="utf-8"), max_size=8)
number = st.none() | st.floats(width=32, allow_nan=False)
times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda time: time.replace(tzinfo=UTC))
records = st.fixed_dictionaries(
    {
        "image": text,
        "label": text,
        "present": st.none() | st.booleans(),
        "kind": st.sampled_from(["image", "point", "box", "mask"]),
        "x": number,
        "y": number,
        "w": number,
        "h": number,
        "rle": st.none() | st.binary(max_size=8),
        "rle_height": st.none() | st.integers(-(2**31), 2**31 - 1),
        "rle_width": st.none() | st.integers(-(2**31), 2**31 - 1),
        "flags": st.none() | st.lists(st.none() | text, max_size=3),
        "source": st.none() | text,
        "time": st.none() | times,
        "seconds": number,
    }
)


@given(st.lists(records, max_size=5))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_unchanged_by_csv(tmp_path, found):
    rows = from_records(found) if found else SCHEMA.empty_table()
    path = tmp_path / "rows.csv"
    with path.open("wb") as file:
        tables.table_writer("csv")(file, rows.to_batches(), SCHEMA)
    again = tables.read_table(path, SCHEMA)
    assert again.equals(rows.combine_chunks())
    assert digest(again) == digest(rows)


def digest(rows: pa.Table) -> str:
    digest = RowsHash()
    digest.update(rows)
    return digest.hexdigest()


def written(text: str, tmp_path) -> pa.Table:
    path = tmp_path / "annotations.csv"
    path.write_bytes(text.encode())
    return tables.read_table(path, SCHEMA)


def test_text_is_never_read_as_a_number_a_date_or_null(tmp_path):
    names = ["007", "1e3", "2024-01-01", "true", "null", "NaN", "NA", "N/A", " spaces "]
    found = written("image,label,present\n" + "".join(f"a.jpg,{name},1\n" for name in names), tmp_path)
    assert found["label"].to_pylist() == names


@pytest.mark.parametrize(("cell", "present"), [("true", True), ("False", False), ("1", True), ("0", False), ("", None)])
def test_presence_is_a_word_or_a_digit_or_left_empty(tmp_path, cell, present):
    assert written(f"image,label,present\na.jpg,cat,{cell}\n", tmp_path)["present"].to_pylist() == [present]


def test_columns_may_come_in_any_order_and_the_optional_ones_may_be_missing(tmp_path):
    found = written("present,label,image,x\n0,cat,a.jpg,0.5\n", tmp_path)
    assert found.schema == SCHEMA
    assert found.to_pylist()[0] == {**dict.fromkeys(SCHEMA.names), **row("cat", False), "x": 0.5}


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path):
    found = written("\ufeffimage,label,present\r\na.jpg,cat,1\r\n", tmp_path)
    assert found.select(["image", "label", "present"]).to_pylist() == [
        {"image": "a.jpg", "label": "cat", "present": True}
    ]


def test_times_are_converted_to_utc(tmp_path):
    found = written("image,label,present,time\na.jpg,cat,1,2024-01-01T10:00:00.000001+02:00\n", tmp_path)
    assert found["time"].to_pylist() == [datetime(2024, 1, 1, 8, 0, 0, 1, UTC)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("image,label,present\na.jpg,cat,maybe\n", "invalid value 'maybe'"),
        ("image,label,present\na.jpg,cat,-1\n", "invalid value '-1'"),
        ("image,label,present\na.jpg,cat\n", "Expected 3 columns, got 2"),
        ("image;label;present\na.jpg;cat;1\n", "lacks image, label, present and has unknown image;label;present"),
        ("image,label,present,time\na.jpg,cat,1,2024-01-01T10:00:00\n", "expected a zone offset"),
        ("image,label,present,flags\na.jpg,cat,1,crowd\n", "row 0: 'crowd' in column 'flags' is not a JSON list"),
        ("image,label,present,flags\na,b,1,\na,b,1,[3]\n", "row 1: '\\[3\\]' in column 'flags'"),
        ("image,label,present,rle\na.jpg,cat,1,!!\n", "'!!' in column 'rle' is not base64"),
        ("image,label,label,present\na.jpg,cat,cat,1\n", "two columns 'label'"),
    ],
)
def test_invalid_csv_is_refused_in_one_sentence(tmp_path, text, sentence):
    with pytest.raises(DatasetError, match=sentence) as error:
        written(text, tmp_path)
    assert str(error.value).startswith(str(tmp_path / "annotations.csv"))
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_utf8_are_refused_in_one_sentence(tmp_path):
    path = tmp_path / "annotations.csv"
    path.write_bytes(b"image,label,present\na.jpg,gr\xf6\xdfe,1\n")
    with pytest.raises(DatasetError, match=r"annotations\.csv cannot be read as CSV in UTF-8"):
        tables.read_table(path, SCHEMA)


def test_the_text_of_a_csv_file():
    file = io.BytesIO()
    tables.table_writer("csv")(
        file, from_records([row(CLASSES[4], None, flags=["crowd"], rle=b"0d0")]).to_batches(), SCHEMA
    )
    assert file.getvalue().decode().splitlines()[1] == ('"a.jpg","a, b",,"image",,,,,"MGQw",,,"[""crowd""]",,,')


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


def test_a_dataset_may_have_no_rows():
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


def test_added_rows_are_only_in_the_copy(tmp_path):
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


SPOOLED = pa.concat_tables([varied().rows()] * 50)


def spooled(lots, **options):
    spool = RowSpool(**options)
    for rows in lots:
        spool.add(rows)
    return spool.close()


def test_few_rows_stay_in_memory():
    found = spooled(SPOOLED.to_batches(max_chunksize=7))

    assert isinstance(found, pa.Table)
    assert str(found.to_pylist()) == str(SPOOLED.to_pylist())  # text, because NaN is not equal to itself


@pytest.mark.parametrize("in_memory", [0, 2000])
def test_many_rows_go_to_a_file_that_disappears_with_its_last_reader(in_memory):
    large = dataset().replace(annotations=spooled(SPOOLED.to_batches(max_chunksize=7), in_memory=in_memory))

    path = Path(large.annotations)
    assert str(pq.read_table(path).to_pylist()) == str(SPOOLED.to_pylist())
    other = large.replace(name="other")
    del large
    gc.collect()
    assert other.rows().num_rows == SPOOLED.num_rows
    del other
    gc.collect()
    assert not path.exists()


def test_tables_and_batches_with_coded_text_mix():
    coded = SPOOLED.set_column(1, "label", SPOOLED["label"].dictionary_encode())

    found = spooled([coded, SPOOLED.to_batches()[0]])

    assert found.schema == SCHEMA
    assert found["label"].to_pylist()[: SPOOLED.num_rows] == SPOOLED["label"].to_pylist()


def test_no_rows_make_an_empty_table():
    assert spooled([SCHEMA.empty_table()]).equals(SCHEMA.empty_table())
