"""Analyses on the command line, and runs that they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tagfill.cli.app import app
from tagfill.errors import TagfillError
from tagfill.experiments.analyses import ANALYSES, analyze


@pytest.mark.parametrize(
    ("name", "named", "message"),
    [
        ("decisions", ["bce"], "names no truth"),
        ("decisions", ["an-1"], "record=decisions"),
        ("decisions", ["an"], "decide nothing"),
        ("heatmap-progress", ["an"], "record=heatmaps"),
        ("cam-agreement", ["an"], "compares two runs"),
        ("cam-agreement", ["bce", "query"], "has no class maps"),
        ("fractions", ["an", "role"], "the same share"),
        ("attention", ["an"], "has no attention"),
        ("sweep", ["an", "role"], "one run"),
        ("convergence", [], "at least one run"),
    ],
)
def test_unsuitable_runs_are_refused(
    runs: dict[str, str], tmp_path: Path, name: str, named: list[str], message: str
) -> None:
    with pytest.raises(TagfillError, match=message):
        analyze(name, [runs[run] for run in named], out=tmp_path, settings=["K=1,2"])


def test_command_line_writes_files_and_prints_json(runs: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["analyse", "scores", runs["an-1"], "--option", "ranks=2", "--out", str(out), "--json", "--quiet"]

    result = CliRunner().invoke(app, arguments, catch_exceptions=False)

    facts = json.loads(result.stdout)
    assert list(facts["an"]) == ["top-1 median", "top-2 median"]
    assert {path.name for path in out.iterdir()} == {"highest-scores.png", "highest-scores.csv", "section.json"}
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert again.stdout == result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convergance", "RUN"], "did you mean 'convergence'"),
        (["groups", "RUN", "--option", "splt=val"], "did you mean 'split'"),
        (["groups", "RUN", "--set", "K=1"], "does not train"),
        (["groups", "nowhere"], "nowhere is not a run folder"),
    ],
)
def test_command_line_mistakes_are_explained(
    runs: dict[str, str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    given = [runs["an"] if word == "RUN" else word for word in arguments]

    with pytest.raises(TagfillError, match=message):
        CliRunner().invoke(app, ["analyse", *given, "--out", str(tmp_path / "out")], catch_exceptions=False)


def test_every_analysis_is_listed() -> None:
    result = CliRunner().invoke(app, ["list", "analyses", "--json"], catch_exceptions=False)

    listed = json.loads(result.stdout)
    assert [row["name"] for row in listed] == list(ANALYSES)
    assert all(row["about"].endswith(".") for row in listed)
