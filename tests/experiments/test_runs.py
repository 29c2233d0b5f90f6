"""Scoring the runs of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tagfill
from tagfill.engines import create_engine
from tagfill.experiments.runs import Outcome, RunJob, group_jobs, score_run
from tagfill.training import build_recipe


@pytest.mark.parametrize(
    ("workers", "groups"), [(1, [[0, 2, 4], [1], [3]]), (2, [[0, 2], [1], [3], [4]]), (8, [[0], [1], [2], [3], [4]])]
)
def test_processes_share_the_runs_that_can_train_together(
    material: dict[str, Any], tmp_path: Path, workers: int, groups: list[list[int]]
) -> None:
    settings = {name: value for name, value in material.items() if name != "features"}
    stage = {"name": "main", "input": "cache"}
    jobs = []
    for number, method in enumerate(["an", "role", "wan", "an", "an"]):
        content = {**settings, "dataset": str(material["dataset"]), "method": method, "stages": [stage], "seed": number}
        recipe = build_recipe(content, features=material["features"])
        jobs.append(RunJob("", recipe, tmp_path / str(number), "test"))
    (tmp_path / "3").mkdir()
    Outcome(50.0).write(tmp_path / "3")  # it was scored before

    assert group_jobs(jobs, create_engine(workers=workers)) == groups
    assert len(group_jobs(jobs, create_engine("ray", address="10.0.0.1:6379"))) == len(jobs)


def test_a_trained_backbone_is_scored_on_images(material: dict[str, Any], tmp_path: Path):
    """Its features are no longer those of the cache that its first stage was trained on."""
    data = tagfill.Dataset.open(material["dataset"])
    linear = {"name": "linear", "input": "cache", "epochs": 1}
    everything = {"name": "everything", "train": "all", "epochs": 1, "start": {"head": "best"}}
    settings = {name: value for name, value in material.items() if name != "dataset"}
    run = tagfill.train(data, method="an", out=tmp_path / "run", stages=[linear, everything], **settings)

    outcome = score_run(run, data, split="test", recover=True)

    assert outcome.score == 100 * tagfill.evaluate(run, data, split="test").mean
    assert outcome.recovered is not None
