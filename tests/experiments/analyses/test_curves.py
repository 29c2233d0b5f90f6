"""Curves over epochs and over shares of labels."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import tagfill
from experiments.analyses.conftest import read_table
from tagfill.experiments.analyses import analyze
from tagfill.experiments.analyses.curves import first_epoch_near_best
from tagfill.experiments.report import Section
from tagfill.training import Run, evaluate


def test_convergence_has_the_scores_of_all_epochs(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("convergence", [runs["an"], runs["an-1"], runs["bce"]], out=tmp_path)

    seeds = [[line["val_mAP"] for line in Run.open(runs[name]).metrics()] for name in ("an", "an-1")]
    rows = [row for row in read_table(tmp_path, "convergence") if row["run"] == "an"]
    assert [float(row["val_mAP"]) for row in rows] == pytest.approx(np.mean(seeds, axis=0), abs=1e-4)
    assert [float(row["deviation"]) for row in rows] == pytest.approx(np.std(seeds, axis=0, ddof=1), abs=1e-4)
    assert set(section.facts) == {"an", "full labels"}
    assert Section.open(tmp_path) == section


def test_first_epoch_near_the_best():
    assert first_epoch_near_best(np.array([50.0, math.nan, 79.5, 80.0])) == 3


def test_runs_are_placed_by_their_share_of_known_labels(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("fractions", [runs["an"], runs["an-half"]], out=tmp_path)

    few, half = (float(share) for share in section.facts["an"]["mAP"])
    assert few == pytest.approx(100 / 20)
    assert half == pytest.approx(50, abs=2)
    data = tagfill.Dataset.open(Path(runs["an"]).parent / "half")
    score = 100 * evaluate(runs["an-half"], data, features=Path(runs["an"]).parent / "cache").mean
    assert section.facts["an"]["mAP"][f"{half:g}"] == pytest.approx(score, abs=1e-3)
