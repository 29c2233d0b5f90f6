"""What the documentation promises is there."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [code for found, code in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def tagfill_calls(code: str) -> list[ast.Call]:
    """The calls of code that name something in tagfill."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).startswith("tagfill.")]


@each_page
def test_links_lead_to_files(page):
    targets = [target for target, _ in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@each_page
def test_links_lead_to_headings(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if anchor and "://" not in target:
            headings = re.findall(r"^#+ (.+)$", (page.parent / target).read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [heading.lower().replace(" ", "-") for heading in headings]


@each_page
def test_python_calls_what_exists(page):
    for code in blocks(page, "python"):
        for call in tagfill_calls(code):
            names = ast.unparse(call.func).split(".")[1:]
            function = functools.reduce(getattr, names, importlib.import_module("tagfill"))
            given = {word.arg: None for word in call.keywords if word.arg is not None}
            inspect.signature(function).bind(*call.args, **given)


@each_page
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = [line for code in blocks(page, "console") for line in code.splitlines() if line.startswith("$ make ")]
    named = {word for line in commands for word in line.partition("#")[0].split()[2:] if "=" not in word}
    assert named <= targets


def test_every_dependency_has_its_line():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    always, extras = page.split("## Extras")
    listed = set(re.findall(r"^\| `([\w-]+)` \|", always, re.MULTILINE))
    assert listed == {name_of(requirement) for requirement in project["dependencies"]}
    listed_extras = set(re.findall(r"^\| `([\w-]+)` \| `([\w-]+)` \|", extras, re.MULTILINE))
    groups = project["optional-dependencies"]
    assert listed_extras == {(extra, name_of(requirement)) for extra in groups for requirement in groups[extra]}


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    assert {name_of(requirement) for group in groups for requirement in group} == pinned


def name_of(requirement: str) -> str:
    """The package of a requirement."""
    return re.split(r"[<>=\[; ]", requirement)[0]


def test_every_method_is_described_with_its_options():
    methods = importlib.import_module("tagfill.methods").METHODS
    overview = (DOCS / "methods" / "index.md").read_text(encoding="utf-8")
    pages = dict(re.findall(r"^\| `([\w-]+)` \|.*\]\((\S+)\) \|$", overview, re.MULTILINE))
    assert set(pages) == set(methods)
    for name, make in methods.items():
        described = set(
            re.findall(r"^\| `(\w+)` \|", (DOCS / "methods" / pages[name]).read_text("utf-8"), re.MULTILINE)
        )
        assert set(inspect.signature(make).parameters) <= described, name


def test_licence_is_the_complete_text():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text.splitlines()[1]
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text
    assert "END OF TERMS AND CONDITIONS" in text
