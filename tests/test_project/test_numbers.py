"""Numbers in the documentation are those that benchmarks wrote down and papers published."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fill_in() -> ModuleType:
    """The script that writes them."""
    spec = importlib.util.spec_from_file_location("fill_in", ROOT / "benchmarks" / "fill_in.py")
    assert spec is not None
    assert spec.loader is not None
    before = list(sys.path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_no_page_differs_from_its_results(fill_in):
    differing = [path.name for path, text in fill_in.should_be() if path.read_text(encoding="utf-8") != text]
    assert differing == [], "python benchmarks/fill_in.py updates them"


def test_every_result_has_its_page(fill_in):
    written = {path.stem for path, _ in fill_in.pages()}
    results = {path.stem.partition("-")[0] for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    in_a_block = {"step_files": "architecture", "cluster": "scaling", "torchrun": "scaling", "scale": "scaling"}
    for name, page in in_a_block.items():
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert f"<!-- numbers: {name.replace('_', '-')} -->" in text
    assert results - in_a_block.keys() == written


def inference(head_options: dict[str, Any]) -> dict[str, Any]:
    """What an entry changes at inference: the boost, unless it is one of training alone."""
    boosted = head_options.get("boost", 1.0) > 1 and head_options.get("boost_eval", True)
    return {name: value for name, value in head_options.items() if boosted and name in ("boost", "boost_from")}


@pytest.mark.parametrize("table", ["A", "D1", "learning", "effects"])
def test_entries_that_change_inference_are_compared_with_like(fill_in, table):
    """Each has `an` and complete labels with the same inference in its table."""
    folder, module = {
        "A": ("voc12", "single_positives"),
        "D1": ("voc12", "end_to_end"),
        "learning": ("learning", "run"),
        "effects": ("effects", "entries"),
    }[table]
    script = ROOT / "benchmarks" / folder / f"{module}.py"
    with fill_in.modules_beside(script):
        found = importlib.import_module(module)
        entries = {
            "A": lambda: found.entries(10),
            "D1": lambda: found.ENTRIES,
            "learning": lambda: found.entries(),
            "effects": lambda: {entry.row: entry for entry in found.single_positive(seed=0)},
        }[table]()
    changed = [(name, entry) for name, entry in entries.items() if inference(entry.head_options)]
    assert changed
    for name, entry in changed:
        alike = [other for _, other in changed if inference(other.head_options) == inference(entry.head_options)]
        complete = [other for other in alike if getattr(other, "complete", getattr(other, "data", "") == "full")]
        assert complete, f"{name}: no entry with complete labels has the same inference"
        assert any(other.method == "an" for other in alike), f"{name}: 'an' has other inference"


def test_pages_show_boosted_rows_beside_boosted_baselines():
    block = re.compile(r"<!-- numbers: (single-positive|whole) (.+) -->")
    boosted_blocks = 0
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for kind, names in block.findall(page.read_text(encoding="utf-8")):
            rows = names.split(";" if kind == "whole" else ",")
            boosted = {re.split(r"\+boost|, boost", row)[0] for row in rows if "boost" in row and "-train" not in row}
            boosted_blocks += bool(boosted)
            assert not boosted or {"an", "full"} <= boosted, f"{page.name}: {names}"
    assert boosted_blocks > 3


def test_rows_that_were_not_run_are_in_the_table(fill_in):
    with fill_in.modules_beside(ROOT / "benchmarks" / "voc12" / "end_to_end.py"):
        table = importlib.import_module("end_to_end")
        setting = {"side": 96, "head epochs": 10, "epochs": 2, "rejected": 1.0, "seeds": 1}
        found = {"setting": setting, "head": {"an": [60.0]}, "whole": {"an": [64.0]}}
        text = table.section(found)
        assert [name for name in table.ENTRIES if f"| `{name}` | not run |" not in text] == ["an"]
    with fill_in.modules_beside(ROOT / "benchmarks" / "effects" / "page.py"):
        page = importlib.import_module("page")
        run = {"row": "an", "at": "", "seed": 0, "lr": 1e-4, "options": {}, "val": 80.0, "test": 81.0}
        assert "\n\nNot run yet: `full`, `ll-r`, " in page.single_positive([run])


def test_the_gap_ends_at_the_best_use_of_complete_labels(fill_in):
    with fill_in.modules_beside(ROOT / "benchmarks" / "coco14" / "single_positives.py"):
        table = importlib.import_module("single_positives")
        scores = {"an": (50.0, 52.0), "ll-r": (53.0, 56.0), "full": (58.0, 60.0)}
        rows = {name: {"name": name, "test": [plain], "boosted": [more]} for name, (plain, more) in scores.items()}
        assert table.cells(rows["ll-r"], rows, "test") == ["53.00", "+3.00", "30%"]
        assert table.cells(rows["ll-r"], rows, "boosted") == ["56.00", "+4.00", "60%"]
        assert table.cells(rows["full"], rows, "test") == ["58.00", "+8.00", "80%"]


def test_a_number_that_was_typed_is_found(fill_in):
    page = ROOT / "docs" / "methods" / "en.md"
    opening, end = "<!-- numbers: single-positive an,en -->", "<!-- end of numbers -->"
    text = fill_in.filled(f"{opening}\n{end}\n", page)
    assert "| `en` | 66.00 | +3.22 ± 0.34 |" in text
    assert "](../benchmarks/learning.md)" in text
    assert fill_in.filled(text, page) == text
    assert fill_in.filled(text.replace("66.00", "67.00"), page) == text


def test_the_end_of_a_block_is_not_forgotten():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- numbers:") == text.count("<!-- end of numbers -->"), page


def test_an_unknown_kind_of_numbers_is_refused(fill_in):
    with pytest.raises(ValueError, match="guesses"):
        fill_in.filled("<!-- numbers: guesses -->\n<!-- end of numbers -->", ROOT / "README.md")


@pytest.mark.parametrize("module", ["results", "settings"])
def test_examples_of_the_cells_of_tables_are_right(fill_in, module):
    assert doctest.testmod(importlib.import_module(f"filling.{module}")).failed == 0
