from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import tagfill
from tagfill import formats
from tagfill.errors import TagfillError
from tagfill.progress import SILENT

HEAVY = ("torch", "PIL", "ijson", "pycocotools")

READ_ONLY = {"cifar100", "coco-panoptic", "cub", "imagenet", "lvis", "nus-wide", "objects365", "openimages"}

each_format = pytest.mark.parametrize("name", formats.FORMATS)
each_function = pytest.mark.parametrize(
    ("name", "function"),
    [*((name, "read") for name in formats.FORMATS), *((name, "write") for name in formats.WRITABLE)],
)


def parameters(name: str, function: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(formats.get(name), function)).parameters.values())


def test_a_format_is_found_by_its_name_and_as_an_attribute():
    assert formats.get("coco-panoptic") is tagfill.formats.coco_panoptic


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(TagfillError, match=r"There is no format 'openimage'; did you mean 'openimages'\?"):
        formats.get("openimage")


def test_other_attributes_do_not_exist():
    with pytest.raises(AttributeError, match="has no attribute 'word'"):
        _ = formats.word


def test_names_are_module_names_with_dashes():
    assert all(path == f"tagfill.formats.{name.replace('-', '_')}" for name, path in formats.FORMATS.items())


def test_knowing_the_formats_imports_none_of_them():
    code = f"import sys, tagfill; tagfill.formats.FORMATS; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"


@each_format
def test_a_format_has_a_title_of_one_line(name):
    module = formats.get(name)

    assert importlib.import_module(formats.FORMATS[name]) is module
    assert module.TITLE.splitlines() == [module.TITLE]


@each_function
def test_what_is_read_and_written_comes_first_and_options_by_keyword(name, function):
    found = parameters(name, function)
    expected = {"read": ["source"], "write": ["dataset", "target"]}[function]

    assert [parameter.name for parameter in found if parameter.kind is not parameter.KEYWORD_ONLY] == expected


@each_function
def test_progress_is_an_option_that_is_silent_unless_given(name, function):
    (progress,) = [parameter for parameter in parameters(name, function) if parameter.name == "progress"]

    assert (progress.default, progress.annotation) == (SILENT, "Progress")


@each_function
def test_every_option_is_typed_and_explained(name, function):
    text = inspect.getdoc(getattr(formats.get(name), function))
    arguments = text.partition("\nArgs:\n")[2]

    for parameter in parameters(name, function):
        assert parameter.annotation is not parameter.empty, parameter.name
        assert f"    {parameter.name}: " in arguments, parameter.name


@each_function
def test_reading_returns_a_dataset_and_writing_returns_nothing(name, function):
    returned = inspect.signature(getattr(formats.get(name), function)).return_annotation

    assert returned == {"read": "Dataset", "write": "None"}[function]


def test_asking_for_a_missing_writer_lists_the_writable_formats():
    assert set(formats.FORMATS) - set(formats.WRITABLE) == READ_ONLY
    for name in READ_ONLY:
        assert not hasattr(formats.get(name), "write")
    with pytest.raises(TagfillError) as error:
        formats.cub.write()
    assert str(error.value) == (
        "The format 'cub' can only be read; formats that can be written are coco, csv, cvat, fiftyone, "
        "folder, hf, label-studio, tags, voc, wide-csv, yolo."
    )
