"""Wide tables."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from formats.datasets import dataset, known_labels, label_states, quick, splits
from tagfill.errors import DatasetError, TagfillError
from tagfill.formats import wide_csv

SIGNED = "image,cat,dog\n1.jpg,1,-1\n2.jpg,0,0\n"


def write_text(path, text):
    path.write_bytes(text.encode())
    return path


def test_blank_is_unknown_and_zero_is_absent(tmp_path):
    text = '\ufefffile,split,"cup, red",007\r\na.jpg,val,1,\r\nb.jpg,test,NaN,0.0\r\nc.jpg,test,,\r\n'
    data = wide_csv.read(write_text(tmp_path / "a.csv", text))
    assert data.classes == ("cup, red", "007")
    assert known_labels(data) == {"a.jpg": {"cup, red": True}, "b.jpg": {"007": False}, "c.jpg": {}}
    assert splits(data) == {"a.jpg": "val", "b.jpg": "test", "c.jpg": "test"}


def test_zero_and_one_alone_are_asked_about_with_counts(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,cat,dog\n1.jpg,1,0\n2.jpg,0,0\n")
    with pytest.raises(DatasetError, match=r"1 of 4 .* the other 3 become unknown .* verified absent"):
        wide_csv.read(path)
    assert known_labels(wide_csv.read(path, absent_means="unknown")) == {"1.jpg": {"cat": True}, "2.jpg": {}}
    assert known_labels(wide_csv.read(path, absent_means="absent")) == {
        "1.jpg": {"cat": True, "dog": False},
        "2.jpg": {"cat": False, "dog": False},
    }


def test_minus_one_is_refused_with_the_counts_of_each_reading(tmp_path):
    path = write_text(tmp_path / "a.csv", SIGNED)
    message = r"holds -1.*canonical: 1 present, 2 absent, 1 unknown; observed: 1 present, 1 absent, 2 unknown"
    with pytest.raises(DatasetError, match=message):
        wide_csv.read(path)


@pytest.mark.parametrize(
    ("coding", "expected"),
    [
        ("canonical", {"1.jpg": {"cat": True}, "2.jpg": {"cat": False, "dog": False}}),
        ("observed", {"1.jpg": {"cat": True, "dog": False}, "2.jpg": {}}),
    ],
)
def test_named_codings(tmp_path, coding, expected):
    assert known_labels(wide_csv.read(write_text(tmp_path / "a.csv", SIGNED), coding=coding)) == expected


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("image,cat\n1.jpg,2\n", {}, r"line 2: found '2' in column 'cat'; 1, 0 or blank is expected"),
        ("image,url,cat\n1.jpg,http:,1\n", {}, r"name it in ignore=\['url'\]"),
        ("image,cat\n1.jpg,\n1.jpg,1\n", {}, r"line 3: found image '1.jpg', which line 2 has already"),
        ("image,cat\n1.jpg,-1\n", {"coding": "blank"}, r"line 2: found '-1' in column 'cat'"),
        ("image,cat\n1.jpg,\n", {"coding": "true"}, r"knows 1 and 0 only"),
        ("image,cat\n1.jpg,1\n", {"coding": "odd"}, "There is no coding 'odd'"),
        ("image,cat\n1.jpg,1\n", {"coding": "true", "absent_means": "absent"}, "leave absent_means out"),
        ("image,cat\n1.jpg,1\n", {"ignore": ["dog"]}, "no column 'dog'"),
        ("image,cat,cat\n1.jpg,1,\n", {}, "has two columns 'cat'"),
        ("image,split\n1.jpg,val\n", {}, "no column for a class"),
    ],
)
def test_refusals(tmp_path, text, options, message):
    with pytest.raises(TagfillError, match=message):
        wide_csv.read(write_text(tmp_path / "a.csv", text), **options)


def test_ignored_columns_are_no_classes(tmp_path):
    path = write_text(tmp_path / "a.csv", "image,url,cat\n1.jpg,http:,\n")
    assert wide_csv.read(path, ignore=["url"]).classes == ("cat",)


def test_unknown_is_not_written_as_true_labels(tmp_path):
    data = dataset({"a.jpg": {"x": True}}, ("x", "y"))
    with pytest.raises(DatasetError, match=r"cannot express unknown labels, but 1 of 2 labels are unknown"):
        wide_csv.write(data, tmp_path / "a.csv", coding="true")


def test_cannot_tell_is_written_as_unknown_only_if_asked(tmp_path):
    data = dataset({"a.jpg": {"x": True, "y": None}}, ("x", "y"))
    with pytest.raises(DatasetError, match=r"cannot tell', but 1 labels are undecided; undecided='drop'"):
        wide_csv.write(data, tmp_path / "a.csv")
    wide_csv.write(data, tmp_path / "a.csv", undecided="drop")
    assert (tmp_path / "a.csv").read_text() == "image,split,x,y\na.jpg,train,1,\n"


def test_class_named_like_a_column_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="a class has that name"):
        wide_csv.write(dataset({"a.jpg": {}}, ("split",)), tmp_path / "a.csv")


@given(data=label_states(states=(True, False, "unknown")), coding=st.sampled_from(["blank", "canonical", "observed"]))
@quick
def test_round_trip(tmp_path, data, coding):
    assume(not {"image", "split"} & set(data.classes))
    wide_csv.write(data, tmp_path / "a.tsv", coding=coding)
    back = wide_csv.read(tmp_path / "a.tsv", coding=coding)
    assert known_labels(back) == known_labels(data)
    assert splits(back) == splits(data)
    assert back.classes == data.classes


@given(data=label_states(states=(True, False)))
@quick
def test_round_trip_of_complete_labels(tmp_path, data):
    wide_csv.write(data, tmp_path / "a.csv", coding="true")
    assert known_labels(wide_csv.read(tmp_path / "a.csv", absent_means="absent")) == known_labels(data)
