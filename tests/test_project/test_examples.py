"""Every script in examples/ runs as a newcomer would run it, small, and prints results that can be true."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
SMALL = ("--train", "18", "--epochs", "1")
FEWER = {  # of what a script compares, so that all of them together take seconds
    "baselines": ("--jobs", "1", "--methods", "hill"),
    "expected_negatives": ("--methods", "en+cl", "en+scl"),
    "label_issues": ("--changed", "0.2"),
    "large_loss": ("--methods", "ll-r"),
    "query_head": ("--heads", "query"),
    "review_loop": ("--decisions", "50"),
    "soft_exposure": ("--methods", "fe", "se"),
}
PRINTED = {  # the rows of the table that each script prints then
    "baselines": ["full", "an", "hill"],
    "expected_negatives": ["en+cl", "en+scl"],
    "label_issues": ["cleanlab"],  # Tagfill doubts nothing after an epoch on 18 images
    "large_loss": ["an", "an, boosted afterwards", "ll-r", "ll-r, BoostLU"],
    "own_backbone": ["guessing", "small_network"],
    "own_format": ["ignore", "an"],
    "own_loop": ["ignore unknown", "assume negative", "large loss", "expected positives"],
    "points": ["tags", "points", "points, PatchCluster"],
    "query_head": ["complete, query", "single, query"],
    "review_loop": ["before the review", "after it"],
    "single_positives": ["an", "epr", "role", "role, LinearInit"],
    "soft_exposure": ["fe", "se"],
}
PUBLIC = {"tagfill", "tagfill.curation.cleanlab"}
each_script = pytest.mark.parametrize("name", SCRIPTS)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all scripts find the scenes and features that the first of them made."""
    return tmp_path_factory.mktemp("cache")


@each_script
def test_it_runs_and_prints_what_it_measured(name, cache, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAGFILL_CACHE", str(cache))
    monkeypatch.setattr(sys, "argv", [f"examples/{name}.py", *SMALL, *FEWER.get(name, ())])
    runpy.run_path(str(SCRIPTS[name]), run_name="__main__")
    printed = capsys.readouterr()
    rows = dict(re.findall(r"^(\S.*?) {2,}(\d+\.\d)(?: .*)?$", printed.out, re.MULTILINE))
    assert sorted(rows) == sorted(PRINTED[name])
    assert all(0 < float(value) <= 100 for value in rows.values())
    assert printed.err == ""


def test_every_script_has_a_docstring_with_its_command_and_duration():
    for name, path in SCRIPTS.items():
        text = path.read_text(encoding="utf-8")
        told = ast.get_docstring(ast.parse(text))
        assert told is not None, name
        assert f"python examples/{name}.py" in told
        assert re.search(r"\b([Mm]inutes?|[Ss]econds)\b", told.splitlines()[-1]), name


def test_scripts_use_the_public_names_alone():
    for name, path in SCRIPTS.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {module for module in modules if module.startswith("tagfill")} <= PUBLIC, name


def test_the_page_of_examples_shows_every_script():
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"literalinclude\} \.\./examples/(\w+)\.py", page)) == list(SCRIPTS)
