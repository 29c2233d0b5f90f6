from __future__ import annotations

import io
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataset.cases import CLASSES, row
from tagfill.dataset import SCHEMA, from_records, tables
from tagfill.dataset.identity import RowsHash
from tagfill.errors import DatasetError

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
def test_any_rows_survive_the_way_through_csv(tmp_path, found):
    rows = from_records(found) if found else SCHEMA.empty_table()
    path = tmp_path / "rows.csv"
    with path.open("wb") as file:
        tables.write_csv(file, rows.to_batches(), SCHEMA)
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


def test_text_is_never_taken_for_a_number_a_date_or_nothing(tmp_path):
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


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path):
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
def test_what_cannot_be_read_is_one_sentence(tmp_path, text, sentence):
    with pytest.raises(DatasetError, match=sentence) as error:
        written(text, tmp_path)
    assert str(error.value).startswith(str(tmp_path / "annotations.csv"))
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_utf8_are_one_sentence(tmp_path):
    path = tmp_path / "annotations.csv"
    path.write_bytes(b"image,label,present\na.jpg,gr\xf6\xdfe,1\n")
    with pytest.raises(DatasetError, match=r"annotations\.csv cannot be read as CSV in UTF-8"):
        tables.read_table(path, SCHEMA)


def test_a_csv_file_reads_well():
    file = io.BytesIO()
    tables.write_csv(file, from_records([row(CLASSES[4], None, flags=["crowd"], rle=b"0d0")]).to_batches(), SCHEMA)
    assert file.getvalue().decode().splitlines()[1] == ('"a.jpg","a, b",,"image",,,,,"MGQw",,,"[""crowd""]",,,')
