from __future__ import annotations

import pytest

from dataset.cases import dataset, row, varied
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, TagfillError


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_saved_dataset_opens_unchanged(tmp_path, kind):
    data = varied()
    again = data.save(tmp_path / "data", tables=kind)
    assert (again.name, again.classes, again.hierarchy, again.protocol) == (
        data.name,
        data.classes,
        data.hierarchy,
        data.protocol,
    )
    assert again.images.equals(data.images)
    assert str(again.rows().to_pylist()) == str(data.rows().to_pylist())  # text, because NaN is not equal to itself
    assert again.rows().schema == data.rows().schema
    assert again.identities == data.identities


@pytest.mark.parametrize(("kind", "other"), [("parquet", "csv"), ("csv", "parquet")])
def test_tables_of_the_other_file_type_are_removed(tmp_path, kind, other):
    dataset(row("cat")).save(tmp_path, tables=other)
    again = dataset(row("dog")).save(tmp_path, tables=kind)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"annotations.{kind}",
        "dataset.yaml",
        f"images.{kind}",
        ".lock",
    }
    assert again.rows()["label"].to_pylist() == ["dog"]


def test_a_dataset_can_be_saved_over_itself_as_another_file_type(tmp_path):
    data = varied().save(tmp_path)
    identities = data.identities
    assert data.save(tmp_path, tables="csv").identities == identities


def test_parquet_is_preferred_to_its_twin(tmp_path):
    dataset(row("dog")).save(tmp_path / "other", tables="csv")
    dataset(row("cat")).save(tmp_path / "data")
    (tmp_path / "other" / "annotations.csv").rename(tmp_path / "data" / "annotations.csv")
    assert Dataset.open(tmp_path / "data").rows()["label"].to_pylist() == ["cat"]


def test_one_table_may_be_csv_and_the_other_parquet(tmp_path):
    dataset(row("cat")).save(tmp_path)
    (tmp_path / "annotations.parquet").unlink()
    (tmp_path / "annotations.csv").write_text("image,label,present\nb.jpg,007,false\n", encoding="utf-8")
    assert Dataset.open(tmp_path).rows().to_pylist()[0]["label"] == "007"


def test_a_failed_save_leaves_the_folder_unchanged(tmp_path):
    before = dataset(row("cat")).save(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    broken = before.replace(annotations=tmp_path / "missing.parquet")
    with pytest.raises(DatasetError, match=r"missing\.parquet"):
        broken.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_folder_can_move_with_its_images_and_truth(tmp_path):
    data = dataset(row("cat"), truth=tmp_path / "set" / "full").replace(root=tmp_path / "set" / "pictures")
    data.save(tmp_path / "set" / "part")
    (tmp_path / "set").rename(tmp_path / "moved")
    again = Dataset.open(tmp_path / "moved" / "part")
    assert (again.root, again.truth) == (tmp_path / "moved" / "pictures", tmp_path / "moved" / "full")


def test_the_resolution_of_conflicts_is_saved(tmp_path):
    data = dataset(row("cat", True), row("cat", False), conflict="majority").save(tmp_path)
    assert data.labels().dense()[0, 0] == -1


@pytest.mark.parametrize("table", ["annotations", "images"])
def test_a_missing_table_is_named(tmp_path, table):
    dataset(row()).save(tmp_path)
    (tmp_path / f"{table}.parquet").unlink()
    with pytest.raises(DatasetError, match=rf"neither {table}\.parquet nor {table}\.csv"):
        Dataset.open(tmp_path)


def test_an_unknown_file_type_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TagfillError, match="no file type of tables 'json'"):
        dataset(row()).save(tmp_path / "data", tables="json")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("root", ["https://host/photos/", "s3://bucket/../photos", "zip://in::https://host/all.zip"])
def test_a_url_as_image_root_is_unchanged(tmp_path, root):
    again = dataset(row("cat")).replace(root=root).save(tmp_path / "data")
    assert again.root == root
    assert Dataset.open(tmp_path / "data").save(tmp_path / "copy").root == root


def test_an_image_root_given_as_text_is_a_path(tmp_path):
    assert (
        dataset(row("cat")).replace(root=str(tmp_path / "photos")).save(tmp_path / "data").root == tmp_path / "photos"
    )
