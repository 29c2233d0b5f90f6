import pyarrow as pa
import pytest

from tagfill.curation import Suggestions
from tagfill.curation.suggestions import SCHEMA
from tagfill.dataset import Dataset
from tagfill.dataset.tables import IMAGES_SCHEMA, from_records
from tagfill.errors import TagfillError

from .cases import photos, suggestions


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_saved_file_reads_back(tmp_path, ending):
    made = suggestions(photos(tmp_path))
    made.save(tmp_path / f"s.{ending}")
    found = Suggestions.read(tmp_path / f"s.{ending}")
    assert found.table.equals(made.table)
    assert found.origin == (made.origin if ending == "parquet" else {})


def test_names_that_a_spreadsheet_would_run_can_be_written_as_text_and_are_read_back(tmp_path):
    names, classes = ["=a.jpg", "'=b.jpg", "c.jpg"], ("@cup", "tree")
    data = Dataset(
        name="formulas",
        root=tmp_path,
        classes=classes,
        images=from_records([{"image": name, "split": "train"} for name in names], IMAGES_SCHEMA),
        annotations=from_records([]),
    )
    made = suggestions(data, classes)
    made.save(tmp_path / "safe.csv", spreadsheet=True)
    written = {cell for line in (tmp_path / "safe.csv").read_text().splitlines()[1:] for cell in line.split(",")[:2]}
    assert written == {'"\'=a.jpg"', "\"''=b.jpg\"", '"c.jpg"', '"\'@cup"', '"tree"'}
    assert Suggestions.read(tmp_path / "safe.csv", data).table.equals(made.table)
    made.save(tmp_path / "plain.csv")
    assert Suggestions.read(tmp_path / "plain.csv", data).table.equals(made.table)
    with pytest.raises(TagfillError, match="--spreadsheet is for CSV files"):
        made.save(tmp_path / "safe.parquet", spreadsheet=True)


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


def predictions(folder, data, name="p.csv", column="probability"):
    rows = ["00000.jpg,cup,0.4,false", "00000.jpg,dog,0.95,true", f"{data.root}/00001.jpg,cup,0.9,true",
            "00001.jpg,tree,0.05,false"]  # fmt: skip
    (folder / name).write_text("\n".join([f"image,label,{column},present", *rows]))
    return folder / name


@pytest.mark.parametrize("column", ["probability", "score"])
def test_predictions_become_questions_about_pairs_that_are_not_annotated(tmp_path, column):
    data = photos(tmp_path)
    table = Suggestions.read(predictions(tmp_path, data, column=column), data).table
    assert [(row["image"], row["label"], row["kind"]) for row in table.to_pylist()] == [
        ("00001.jpg", "cup", "missing"),
        ("00000.jpg", "cup", "missing"),
    ]  # not the dog, which is annotated, nor the improbable tree
    assert table["probability"].to_pylist() == pytest.approx([0.9, 0.4])


def test_predictions_about_other_images_are_refused(tmp_path):
    (tmp_path / "p.csv").write_text("image,label,probability,present\nelsewhere/7.jpg,cup,0.9,true\n")
    with pytest.raises(TagfillError, match=r"about the image 'elsewhere/7\.jpg'"):
        Suggestions.read(tmp_path / "p.csv", photos(tmp_path))


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
