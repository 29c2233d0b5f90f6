"""Long tables."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from formats.datasets import dataset, known_labels, label_states, quick, splits
from tagfill import formats
from tagfill.errors import DatasetError, TagfillError, TagfillWarning

csv = formats.get("csv")


def write_text(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_values_are_present_absent_and_cannot_tell(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label,value\n1.jpg,cat,1\n1.jpg,dog,false\n2.jpg,cat,\n3.jpg,,\n")
    data = csv.read(path)
    assert known_labels(data) == {"1.jpg": {"cat": True, "dog": False}, "2.jpg": {"cat": None}, "3.jpg": {}}
    assert data.classes == ("cat", "dog")
    assert splits(data) == {"1.jpg": "train", "2.jpg": "train", "3.jpg": "train"}
    assert data.root == tmp_path


def test_marks_line_ends_quotes_and_leading_zeros(tmp_path):
    lines = [
        "image,label,value,split",
        '"a, b.jpg", "say ""hi""",1.0,val',
        "007,012,0,test",
        "",
        '"x\ny.jpg",猫,TRUE,val',
    ]
    text = "\r\n".join(lines)
    data = csv.read(write_text(tmp_path / "a.csv", text, "utf-8-sig"))
    assert known_labels(data) == {"a, b.jpg": {'say "hi"': True}, "007": {"012": False}, "x\ny.jpg": {"猫": True}}
    assert splits(data) == {"a, b.jpg": "val", "007": "test", "x\ny.jpg": "val"}


def test_tab_separated_and_other_column_names(tmp_path):
    path = write_text(tmp_path / "a.tsv", "tag\tfile\ncat\t1,2.jpg\n")
    data = csv.read(path, image_column="file", label_column="tag", absent_means="unknown")
    assert known_labels(data) == {"1,2.jpg": {"cat": True}}


@pytest.mark.parametrize(
    ("absent_means", "expected"),
    [
        ("unknown", {"1.jpg": {"cat": True, "dog": True}, "2.jpg": {"dog": True}, "3.jpg": {}}),
        (
            "absent",
            {
                "1.jpg": {"cat": True, "dog": True},
                "2.jpg": {"cat": False, "dog": True},
                "3.jpg": {"cat": False, "dog": False},
            },
        ),
    ],
)
def test_without_values_the_reading_is_chosen(tmp_path, absent_means, expected):
    path = write_text(tmp_path / "a.csv", "image,label\n1.jpg,cat\n1.jpg,dog\n2.jpg,dog\n3.jpg,\n")
    assert known_labels(csv.read(path, absent_means=absent_means)) == expected


def test_without_values_the_reading_is_asked_for_with_counts(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label\n1.jpg,cat\n1.jpg,dog\n2.jpg,dog\n")
    with pytest.raises(DatasetError, match=r"3 of 4 .* the other 1 become unknown .*absent_means='absent'"):
        csv.read(path)


def test_parquet_values_of_any_type(tmp_path):
    columns = {"image": ["1.jpg", "1.jpg", "2.jpg"], "label": [7, 8, 7], "value": [1.0, 0.0, None]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert known_labels(csv.read(tmp_path / "a.parquet")) == {"1.jpg": {"7": True, "8": False}, "2.jpg": {"7": None}}


def test_classes_given_keep_their_order(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label,value\n1.jpg,cat,1\n")
    assert csv.read(path, classes=["dog", "cat"]).classes == ("dog", "cat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,label,value\n1.jpg,cat,-1\n", r"a\.csv, line 2: found value '-1'; 1 or true is present"),
        ("image,label,value\n1.jpg,cat\n", r"line 2: found 2 cells, but the header has 3"),
        ("image,label,value\n1.jpg,,1\n", r"line 2: found value '1' without a label"),
        ("image,label,value,split\n1.jpg,a,1,train\n1.jpg,b,1,val\n", r"line 3: .*one split"),
        ("image,label,value\n/x/1.jpg,cat,1\n", r"line 2: image '/x/1.jpg' is not a path below"),
        ("image,label,value\n../1.jpg,cat,1\n", r"line 2: image '../1.jpg' is not a path below"),
        ("file,label,value\n1.jpg,cat,1\n", r"no column 'image', its columns are file, label, value"),
        ("", r"a\.csv is empty"),
    ],
)
def test_bad_rows_are_named(tmp_path, text, message):
    with pytest.raises(DatasetError, match=message):
        csv.read(write_text(tmp_path / "a.csv", text))


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_first_wrong_row_is_named_however_many_are_read_at_a_time(tmp_path, monkeypatch, rows, ending):
    monkeypatch.setattr(csv, "_BATCH_ROWS", rows)
    monkeypatch.setattr(csv, "_PARQUET_ROWS", rows)
    columns = {
        "image": ["1.jpg", "2.jpg", "1.jpg", "2.jpg", "/3.jpg", "4.jpg"],
        "label": ["a", "b", "b", "a", "c", ""],
        "value": ["1", "0", "", "1", "2", "1"],
        "split": ["val", "", "val", "test", "", ""],
    }

    def write(count):
        part = {name: cells[:count] for name, cells in columns.items()}
        if ending == "parquet":
            pq.write_table(pa.table(part), tmp_path / "a.parquet")
        else:
            lines = [",".join(cells) for cells in zip(*part.values(), strict=True)]
            write_text(tmp_path / "a.csv", "\n".join([",".join(part), *lines]))
        return csv.read(tmp_path / f"a.{ending}")

    data = write(3)
    assert known_labels(data) == {"1.jpg": {"a": True, "b": None}, "2.jpg": {"b": False}}
    assert splits(data) == {"1.jpg": "val", "2.jpg": "train"}
    with pytest.raises(DatasetError, match=f"{'row 3' if ending == 'parquet' else 'line 5'}: .* in split 'test', but"):
        write(6)


def test_other_encodings_are_refused(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label,value\né.jpg,cat,1\n", "latin-1")
    with pytest.raises(DatasetError, match=r"line 2: found bytes that are not UTF-8"):
        csv.read(path)


def test_label_outside_the_classes_given(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label,value\n1.jpg,cat,1\n1.jpg,cow,1\n")
    with pytest.raises(DatasetError, match=r"line 3: found label 'cow', which is not among the classes"):
        csv.read(path, classes=["cat"])


def test_wrong_reading_and_missing_file(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label\n1.jpg,cat\n")
    with pytest.raises(TagfillError, match="give one of unknown, absent"):
        csv.read(path, absent_means="maybe")
    with pytest.raises(DatasetError, match="is missing"):
        csv.read(tmp_path / "b.csv")


def test_target_must_have_a_known_ending(tmp_path):
    with pytest.raises(DatasetError, match=r"should end in \.csv, \.tsv or \.parquet"):
        csv.write(dataset({"a.jpg": {}}, ("x",)), tmp_path / "a.xlsx")


def test_cells_with_several_labels_are_split(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label\n1.jpg,cat; dog;\n2.jpg,dog\n3.jpg,\n")
    data = csv.read(path, separator=";", absent_means="unknown")
    assert known_labels(data) == {"1.jpg": {"cat": True, "dog": True}, "2.jpg": {"dog": True}, "3.jpg": {}}
    with pytest.raises(DatasetError, match="separator is empty"):
        csv.read(path, separator="", absent_means="unknown")


def test_classes_that_look_like_several_are_named(tmp_path):
    path = write_text(tmp_path / "a.csv", 'image,label\n1.jpg,"dog, person"\n2.jpg,dog\n')
    with pytest.warns(TagfillWarning, match=r"1 of 2 classes contains .*: 'dog, person'; .* give their separator="):
        csv.read(path, absent_means="unknown")


def test_classes_that_differ_by_case_or_blanks_are_named(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,label\n1.jpg,traffic light\n2.jpg,Trafficlight\n3.jpg,dog\n")
    with pytest.warns(TagfillWarning, match="differ only by case or blanks: 'Trafficlight' and 'traffic light'"):
        csv.read(path, absent_means="unknown")


@pytest.mark.filterwarnings("ignore::tagfill.errors.TagfillWarning")  # names with commas are on purpose
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@given(data=label_states())
@quick
def test_round_trip(tmp_path, suffix, data):
    csv.write(data, tmp_path / f"a{suffix}")
    back = csv.read(tmp_path / f"a{suffix}", classes=data.classes)
    assert known_labels(back) == known_labels(data)
    assert splits(back) == splits(data)
    assert back.classes == data.classes
