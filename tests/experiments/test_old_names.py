"""Public names of version 0.1 still work, with a warning."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tagfill.errors import DatasetError
from tagfill.experiments import BudgetPlan, BudgetStudy, budget, compare
from tagfill.experiments.runs import Outcome


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("tagfill.experiments", "Plan", "BudgetPlan"),
        ("tagfill.experiments.analyses", "analyse", "analyze"),
        ("tagfill.experiments.analyses", "Question", "AnalysisInput"),
        ("tagfill.experiments.pictures", "overlay", "overlay_class_map"),
        ("tagfill.experiments.pictures", "outlined", "draw_boxes"),
        ("tagfill.experiments.pictures", "grid", "picture_grid"),
        ("tagfill.experiments.recipes", "Row", "PublishedRow"),
    ],
)
def test_renamed_names(module: str, old: str, new: str) -> None:
    home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=new):
        assert getattr(home, old) is getattr(home, new)


def test_renamed_keywords(tmp_path: Path) -> None:
    plan = BudgetPlan(("I",), (1.0,))
    with pytest.warns(DeprecationWarning, match="grid"), pytest.raises(DatasetError):
        compare(tmp_path / "nowhere", "an", out=tmp_path, choices=[])
    with pytest.warns(DeprecationWarning, match="localize"), pytest.raises(DatasetError):
        budget(tmp_path / "nowhere", plan, out=tmp_path, localise="minmax")


def test_renamed_attributes_of_a_study() -> None:
    with pytest.warns(DeprecationWarning, match="results"):
        assert BudgetStudy("d", "test", "an", BudgetPlan(("I",), (1.0,)), ()).findings == ()


def test_outcomes_of_version_0_1_are_read_and_written_unchanged(tmp_path: Path) -> None:
    content = {
        "score": 71.5,
        "validation": None,
        "epoch": 3,
        "seconds": 1.25,
        "error": None,
        "localisation": 20.5,
        "split": "test",
        "recovered": {"called": 4, "right": 1, "missing": 10},
    }
    (tmp_path / "outcome.json").write_text(text := json.dumps(content, indent=2) + "\n")

    outcome = Outcome.read(tmp_path)
    assert outcome is not None
    assert outcome.localization == 20.5
    outcome.write(tmp_path)

    assert (tmp_path / "outcome.json").read_text() == text
