import pyarrow as pa
import pytest

from tagfill.curation import Suggestions
from tagfill.curation.suggestions import SCHEMA
from tagfill.errors import TagfillError

from .cases import photos, suggestions


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_saved_file_reads_back(tmp_path, ending):
    made = suggestions(photos(tmp_path))
    made.save(tmp_path / f"s.{ending}")
    found = Suggestions.read(tmp_path / f"s.{ending}")
    assert found.table.equals(made.table)
    assert found.origin == (made.origin if ending == "parquet" else {})


def test_a_csv_file_needs_three_columns(tmp_path):
    (tmp_path / "s.csv").write_text("image,label,probability\na.jpg,cup,0.5\n")
    assert Suggestions.read(tmp_path / "s.csv").table.to_pylist() == [
        {"image": "a.jpg", "label": "cup", "kind": "missing", "annotated": None, "probability": 0.5, "value": 0.5}
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("image,label\na.jpg,cup\n", "has no column .probability."),
        ("image,label,probability\na.jpg,cup,2\n", "not between 0 and 1"),
        ("image,label,probability\na.jpg,cup,nan\n", "empty cells"),
        ("image,label,probability\na.jpg,cup,\n", "probability has empty cells"),
        ("image,label,probability\na.jpg,cup,much\n", "damaged or holds no suggestions"),
        ("image,label,probability,kind\na.jpg,cup,0.5,odd\n", "kind of a suggestion is 'odd'"),
        ("", "the file is empty"),
    ],
)
def test_invalid_files_are_refused(tmp_path, content, reason):
    (tmp_path / "s.csv").write_text(content)
    with pytest.raises(TagfillError, match=reason):
        Suggestions.read(tmp_path / "s.csv")


def test_damaged_and_missing_files(tmp_path):
    (tmp_path / "s.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(TagfillError, match=r"s\.parquet is damaged"):
        Suggestions.read(tmp_path / "s.parquet")
    with pytest.raises(TagfillError, match="There is no file"):
        Suggestions.read(tmp_path / "none.parquet")
    with pytest.raises(TagfillError, match="neither"):
        Suggestions.empty().save(tmp_path / "s.txt")


def test_suggestions_of_another_dataset_are_refused(tmp_path):
    data = photos(tmp_path)
    strange = [{"image": "99.jpg", "label": "cup", "kind": "missing", "probability": 0.5, "value": 0.5}]
    with pytest.raises(TagfillError, match=r"about the image '99\.jpg'"):
        Suggestions(pa.Table.from_pylist(strange, schema=SCHEMA)).check(data)
    strange = [{"image": "00001.jpg", "label": "cap", "kind": "missing", "probability": 0.5, "value": 0.5}]
    with pytest.raises(TagfillError, match="about the label 'cap'"):
        Suggestions(pa.Table.from_pylist(strange, schema=SCHEMA)).check(data)
