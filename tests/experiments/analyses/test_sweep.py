"""Sweeps: which settings a name refers to, and one run per combination."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.analyses.conftest import read_table
from tagfill.errors import TagfillError
from tagfill.experiments.analyses import analyze
from tagfill.experiments.analyses.sweep import parse_axes, vary_recipe
from tagfill.training import Run, make_recipe

RECIPE = make_recipe({"dataset": "d", "method": "en+scl", "stages": [{"options": {"en": {}}}, {"name": "two"}]})


def test_sweep_trains_every_combination_once(runs: dict[str, str], tmp_path: Path) -> None:
    options = {"out": tmp_path, "settings": ["K=1.5,3"], "seeds": 1, "jobs": 1}
    section = analyze("sweep", [runs["en-scl"]], **options)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/run.json")}

    again = analyze("sweep", [runs["en-scl"]], **options)

    assert {path.parent.name for path in before} == {"K=1.5-s0", "K=3-s0"}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.facts == section.facts
    scores = {row["K"]: float(row["mAP"]) for row in read_table(tmp_path, "sweep")}
    expected = {name: Run.open(tmp_path / "runs" / f"K={name}-s0").best["val_mAP"] for name in ("1.5", "3")}
    assert scores == pytest.approx(expected, abs=1e-3)
    assert {row["labels"] for row in read_table(tmp_path, "label-counts")} <= set("1234567")


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("K", ("options.en.expected",)),
        ("mu", ("options.en.momentum", "options.scl.momentum", "options.scl.scores_momentum")),
        ("gamma", ("options.scl.weight",)),
        ("alpha", ("head_options.boost",)),
        ("scl.distance", ("options.scl.distance",)),
        ("options.scl.distance", ("options.scl.distance",)),
        ("optimizer.lr", ("optimizer.lr",)),
        ("crop_scale", ("crop_scale",)),
    ],
)
def test_symbols_and_names_refer_to_settings(name, paths):
    (axis,) = parse_axes([f"{name}=1,2"], RECIPE)

    assert axis.paths == paths


def test_values_are_set_in_the_recipe_and_in_stages():
    axes = parse_axes(["K=1.5,2", "crop_scale=[0.25,1.0],[0.5,1.0]"], RECIPE)

    last = vary_recipe(RECIPE, axes, tuple(axis.values[-1] for axis in axes), seed=7)

    assert last.seed == 7
    assert last.options["en"]["expected"] == 2
    assert last.stages[0].options == {"en": {"expected": 2}}
    assert [stage.crop_scale for stage in last.stages] == [(0.5, 1.0), (0.5, 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("momentun=1", "did you mean 'momentum'"),
        ("rate=1,2", "There is no setting 'rate' of en.scl"),
        ("K", "has no value"),
        ("K=", "There is no value"),
        ("K=[1", "is not a list of values"),
    ],
)
def test_wrong_sweeps_are_refused(text, message):
    with pytest.raises(TagfillError, match=message):
        parse_axes([text], RECIPE)


def test_a_sweep_without_settings_is_refused():
    with pytest.raises(TagfillError, match="something to vary"):
        parse_axes([], RECIPE)
