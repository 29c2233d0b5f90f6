"""How the documentation is built: docstrings become pages, and pages stand alone."""

from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
API = ROOT / "docs" / "api"


def extension(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_extensions" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["docstrings", "notebook_pages", "self_contained"])
def test_extensions_do_what_their_examples_say(name):
    outcome = doctest.testmod(extension(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_a_doctest_stays_as_it_is():
    lines = ["Call `f`:", "", "    >>> f(*x, a_=1)", "    '|'", "", "and |then|."]
    assert extension("docstrings").converted(lines)[-3:] == ["    '|'", "", "and \\|then\\|."]


def test_a_table_stays_a_table():
    converted = extension("docstrings").converted(["Files:", "", "| a | b |", "|---|---|", "", "and *more*."])
    assert converted == ["Files:", "", "::", "", "    | a | b |", "    |---|---|", "", "and *more*."]


def test_what_another_host_would_be_asked_for_is_found(tmp_path):
    pages = extension("self_contained")
    (tmp_path / "page.html").write_text('<link rel="stylesheet" href="https://fonts.example/f.css"><p>x</p>')
    (tmp_path / "fine.html").write_text('<link rel="stylesheet" href="_static/f.css"><a href="https://b.example">b</a>')
    assert [(path.name, address) for path, address in pages.found(tmp_path)] == [
        ("page.html", "https://fonts.example/f.css")
    ]


def test_every_format_is_in_the_reference():
    formats = importlib.import_module("tagfill.formats").FORMATS
    named = re.findall(r"^\.\. automodule:: (\S+)", (API / "formats.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in named if name in formats.values()] == list(formats.values())


def test_every_module_of_the_package_has_its_page():
    tagfill = importlib.import_module("tagfill")
    modules = {name for name in tagfill.__all__ if isinstance(getattr(tagfill, name), ModuleType)}
    assert modules <= {path.stem for path in API.glob("*.md")}


def test_names_that_one_page_leaves_out_are_on_another():
    for page in API.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"automodule:: (\S+)\n(?:   :.*\n)*   :exclude-members: (.*)", text):
            other = "tagfill" if module != "tagfill" else "tagfill.dataset"
            if module != "tagfill.contract":  # whose other names are those of annotations and images
                left_out = set(names.split(", ")) - {"model_config"}  # of pydantic
                assert left_out <= set(importlib.import_module(other).__all__), page.name


def test_every_page_of_the_reference_is_listed():
    listed = re.findall(r"\]\((\w+)\.md\)", (API / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.stem for path in API.glob("*.md") if path.stem != "index")
