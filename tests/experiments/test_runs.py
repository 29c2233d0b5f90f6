"""Scoring the runs of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tagfill
from tagfill.experiments.runs import score_run


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
