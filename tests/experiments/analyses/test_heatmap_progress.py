"""Recorded heatmaps of several runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.analyses.conftest import read_table
from tagfill.experiments.analyses import analyze
from tagfill.experiments.analyses.inputs import open_runs
from tagfill.training import records


def test_heatmaps_of_two_runs_are_shown_side_by_side(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("heatmap-progress", [runs["en-scl"], runs["en-scl-0"]], out=tmp_path, images=1)

    assert len(section.figures) == 3
    rows = read_table(tmp_path, "heatmaps-side-by-side")
    assert [row["kind"] for row in rows[::2]] == ["annotated", "present, not annotated", "absent"]
    (run,) = open_runs([runs["en-scl"]])
    names = run.dataset.names(run.dataset.split("train"))
    image, label = names.index(rows[0]["image"]), run.dataset.classes.index(rows[0]["class"])
    *_, last = records.read_records(run.run)
    values = last.column("heatmaps.values")[last.column("heatmaps.index").tolist().index(image), label] / 255
    assert float(rows[0]["mean"]) == pytest.approx(values.mean(), abs=1e-4)
