from __future__ import annotations

import pytest
import yaml

from dataset.cases import dataset, row
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError


def opened(folder, **changes):
    """Open a folder whose dataset.yaml has some keys changed; None removes one."""
    dataset(row()).save(folder)
    path = folder / "dataset.yaml"
    content = {**yaml.safe_load(path.read_text(encoding="utf-8")), **changes}
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}), "utf-8")
    return Dataset.open(folder)


def opened_text(folder, text):
    dataset(row()).save(folder)
    (folder / "dataset.yaml").write_text(text, encoding="utf-8")
    return Dataset.open(folder)


def test_classes_that_yaml_would_misread_are_written_in_quotes(tmp_path):
    names = ("007", "no", "2024-01-01", "1e3", "null", "~", "a: b", "# c", "two\nlines", "größe", " x ")
    assert dataset(classes=names).save(tmp_path).classes == names


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("007", "the int 7"),
        ("no", "the bool False"),
        ("2024-01-01", "the date 2024-01-01"),
        ("1.5", "the float 1.5"),
        ("null", "empty"),
        ("[a, b]", "the list"),
    ],
)
def test_a_class_that_yaml_did_not_read_as_text_is_named(tmp_path, written, read):
    with pytest.raises(DatasetError, match=f"entry 2 of 'classes' was read as {read}.*quotes"):
        opened_text(tmp_path, f"name: x\nroot: .\nclasses:\n- cat\n- {written}\n")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"classes": ["cat", "dog", "cat"]}, "class 'cat' is listed 2 times"),
        ({"classes": ["cat", " "]}, "entry 2 of 'classes' is blank"),
        ({"classes": "cat"}, "'classes' must be a list of names, and is the str cat"),
        ({"classes": None}, "lacks classes"),
        ({"name": ["x"]}, "'name' must be text"),
        ({"root": 3}, "'root' must be text, and is the int 3"),
        ({"truth": 3}, "'truth' must be text"),
        ({"hierarchy": {"cat": "animal"}}, "'hierarchy' must be a list of .child, parent. pairs"),
        ({"hierarchy": [["cat", "animal"], ["dog"]]}, "entry 2 of 'hierarchy' must be a pair"),
        ({"hierarchy": [["cat", 7]]}, "entry 1 of 'hierarchy' must be a pair"),
        ({"protocol": "single"}, "'protocol' must be a mapping"),
        ({"hierachy": []}, "no key 'hierachy'; did you mean 'hierarchy'"),
    ],
)
def test_errors_are_one_sentence(tmp_path, changes, sentence):
    with pytest.raises(DatasetError, match=sentence) as error:
        opened(tmp_path, **changes)
    assert str(error.value).startswith(str(tmp_path / "dataset.yaml"))
    assert "\n" not in str(error.value)


def test_other_keys_are_ignored(tmp_path):
    assert opened(tmp_path, licence="CC0").name == "small"


@pytest.mark.parametrize("text", ["classes: [cat", "\x00", "- cat", ""])
def test_a_file_without_keys_is_refused(tmp_path, text):
    with pytest.raises(DatasetError, match=r"dataset\.yaml (is not valid YAML|must be a mapping)[^\n]*$"):
        opened_text(tmp_path, text)


def test_no_object_is_built_from_yaml(tmp_path):
    with pytest.raises(DatasetError, match="not valid YAML"):
        opened_text(tmp_path, "name: !!python/object/apply:os.getcwd []\nroot: .\nclasses: []\n")


def test_paths_that_are_not_dataset_folders_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="There is no folder"):
        Dataset.open(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatasetError, match="is a file, not a dataset folder"):
        Dataset.open(tmp_path / "file")
    with pytest.raises(DatasetError, match=r"it has no dataset\.yaml"):
        Dataset.open(tmp_path)


def test_many_classes_are_checked_quickly(tmp_path):
    names = tuple(f"class {number}" for number in range(10_000))
    assert dataset(classes=names).save(tmp_path).classes == names
