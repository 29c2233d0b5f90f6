"""Distributions of scores, counted again from the records."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from experiments.analyses.conftest import read_table
from tagfill.experiments.analyses import analyze
from tagfill.experiments.analyses.inputs import open_runs
from tagfill.experiments.analyses.scores import histogram, share_above_half, top_probabilities
from tagfill.training import records


def test_scores_of_missed_positives_are_counted_epoch_by_epoch(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("scores", [runs["an"], runs["role"]], out=tmp_path)

    (run,) = open_runs([runs["role"]])
    observed, truth = run.dataset.labels("train").dense(), run.truth().dense()
    rows = read_table(tmp_path, "unobserved-positives")
    assert {row["run"] for row in rows} == {"an", "role", "role, estimates"}
    *_, last = records.read_records(run.run)
    values = last.column("scores.estimates")
    missed = [
        float(values[row, label])
        for row, image in enumerate(last.column("scores.index"))
        for label in range(truth.shape[1])
        if observed[image, label] == -1 and truth[image, label] == 1
    ]
    upper = [r for r in rows if r["run"] == "role, estimates" and r["epoch"] == "2" and float(r["from"]) == 0.48]
    assert float(upper[0]["share"]) == pytest.approx(np.mean([0.48 <= value < 0.52 for value in missed]), abs=1e-6)
    assert len(section.figures) == 2


def test_without_recorded_scores_the_text_says_how_to_record_them(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("scores", [runs["an-1"]], out=tmp_path, ranks=1)

    assert len(section.figures) == 1
    assert "--set record=scores" in section.text[0]


def test_highest_scores_of_each_image_are_sorted():
    logits = np.random.default_rng(5).normal(size=(7, 6))

    found = top_probabilities(logits, 3)

    for row, values in zip(logits.tolist(), found.tolist(), strict=True):
        assert values == pytest.approx([1 / (1 + math.exp(-g)) for g in sorted(row, reverse=True)[:3]])


def test_histograms_count_every_value_once():
    values = np.array([0.0, 0.04, 0.5, 0.999, 1.0])

    shares = histogram(values, 25)

    assert shares.sum() == pytest.approx(1)
    assert shares[[0, 1, 12, 24]].tolist() == pytest.approx([0.2, 0.2, 0.2, 0.4])
    assert share_above_half(np.stack([np.zeros(25), shares])) == pytest.approx(0.4)
