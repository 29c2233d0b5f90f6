"""Points through the whole of training: views, marks, maps, pseudo-labels, localisation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tagfill
from tagfill.dataset import Dataset
from tagfill.training import make_recipe, start

TINY = {"backbone": "test_resnet", "pretrained": False, "image_size": 64, "batch_size": 8}


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("points")
    full = tagfill.scenes.make(folder / "full", train=32, val=8, test=8, size=64)
    budget = tagfill.protocols.PROTOCOLS["budget"]
    return budget(full, percent=30, kind="SP", seed=1).save(folder / "points")


def trained(data: Dataset, out: Path, method: str, stages: list[dict] | None = None, **settings) -> list[dict]:
    """The lines of `metrics.jsonl` of a run."""
    content = {"dataset": str(data.folder), "method": method, **TINY, **settings}
    start(data, make_recipe({**content, "stages": stages or [{"train": "all", "epochs": 1}]}), out=out)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("head", ["cam", "tscam"])
def test_points_teach_any_head_with_maps(points, tmp_path, head):
    (line,) = trained(points, tmp_path / "run", "patchml", head=head)
    assert line["loss"]["image"] > 0
    assert line["loss"]["patch"] > 0
    found = tagfill.evaluate(tmp_path / "run", Dataset.open(points.truth), split="test", localize="sigmoid")
    assert found.localized.placed.sum() > 0


def test_pseudo_labels_of_a_stage_are_those_of_the_next(points, tmp_path):
    again = {"backbone": "pretrained", "head": "new", "memory": "last"}
    stages = [
        {"name": "supervised", "method": "patchml", "options": {}, "train": "all", "epochs": 1},
        {"name": "look", "train": "all", "epochs": 1, "start": {"backbone": "previous", "head": "best"}},
        {"name": "again", "train": "all", "epochs": 1, "start": again},
    ]
    options = {"patchcluster": {"precision": 0.2, "missed": 0.2, "scope": "all_unknown"}}
    lines = trained(points, tmp_path / "run", "patchml+patchcluster", stages, options=options)
    told = [line for line in (tmp_path / "run" / "log.txt").read_text().splitlines() if "patchcluster:" in line]
    assert len(told) == 1
    assert "against the truth: precision" in told[0]
    assert "decisions" not in lines[0]
    assert lines[1]["decisions"]["pseudo-labelled"] > 0
    assert lines[1]["decisions"] == lines[2]["decisions"]
    assert np.isfinite(lines[2]["loss"]["pseudo"])


def test_weak_and_strong_views_beside_points(points, tmp_path):
    options = {"fixmatch": {"scope": "all_unknown", "positive": 0.55, "negative": 0.45}}
    (line,) = trained(points, tmp_path / "run", "patchml+fixmatch", options=options)
    assert set(line["loss"]) == {"image", "patch", "fixmatch"}
    assert line["decisions"]["pseudo-labelled"] > 0


def test_weak_and_strong_views_from_a_cache(points, tmp_path):
    cache = tagfill.features(
        points, backbone="test_resnet", pretrained=False, image_size=64, views="eval,pairs:1", out=tmp_path / "cache"
    )
    stages = [{"input": "cache", "train": "head", "epochs": 1}]
    options = {"fixmatch": {"scope": "all_unknown", "positive": 0.55, "negative": 0.45}}
    settings = {"features": str(cache.folder), "options": options}
    (line,) = trained(points, tmp_path / "run", "patchml+fixmatch", stages, **settings)
    assert line["decisions"]["pseudo-labelled"] > 0
    assert line["loss"]["patch"] > 0
