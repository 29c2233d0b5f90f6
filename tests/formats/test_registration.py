from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import tagfill
from tagfill import formats
from tagfill.errors import TagfillError

HEAVY = ("torch", "PIL", "ijson", "pycocotools")


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


@pytest.mark.parametrize("name", ["coco", "coco-panoptic", "lvis", "objects365", "openimages", "voc"])
def test_a_format_has_a_title_and_reads_and_writes(name):
    module = formats.get(name)

    assert isinstance(module.TITLE, str)
    assert next(iter(inspect.signature(module.read).parameters)) == "source"
    assert list(inspect.signature(module.write).parameters)[:2] == ["dataset", "target"]
    assert importlib.import_module(formats.FORMATS[name]) is module
