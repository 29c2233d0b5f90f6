"""Points through the whole of training, in one process and in two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tagfill
from tagfill.dataset import Dataset
from tagfill.experiments import recipes
from tagfill.memory.statistics import Prototypes
from tagfill.training import Recipe, make_recipe, resume, start

from .conftest import Material
from .processes import PATIENCE, outcome
from .record_prototypes import recording
from .stopping import stop_in_epoch

TINY = {"backbone": "test_resnet", "pretrained": False, "image_size": 64, "batch_size": 8}


@pytest.fixture(scope="module")
def scenes_with_points(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
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
def test_points_teach_any_head_with_maps(scenes_with_points, tmp_path, head):
    (line,) = trained(scenes_with_points, tmp_path / "run", "patchml", head=head)
    assert line["loss"]["image"] > 0
    assert line["loss"]["patch"] > 0
    found = tagfill.evaluate(tmp_path / "run", Dataset.open(scenes_with_points.truth), split="test", localize="sigmoid")
    assert found.localized.placed.sum() > 0


def test_csl_i_of_the_recipe_uses_the_prior_of_its_helper_stage(scenes_with_points, tmp_path, monkeypatch):
    """No prior is above 1, so that a threshold of 1 is like no prior; above 0 all classes are frequent."""
    published = recipes.settings("patchml-coco14-unlabeled", "sp-1+csl-i")
    given = {**published, **TINY, "dataset": str(scenes_with_points.folder)}
    for stage, epochs in zip(given["stages"], (1, 2), strict=True):
        stage["epochs"] = epochs

    def changed(**options: Any) -> Recipe:
        return make_recipe({**given, "options": {"patchml": {**published["options"]["patchml"], **options}}})

    cases = {"rare": {"prior_threshold": 1.0}, "without": {"prior": "none"}, "frequent": {"prior_threshold": 0.0}}
    found = {}
    for name, options in cases.items():
        start(scenes_with_points, changed(**options), out=tmp_path / name)
        found[name] = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in found["frequent"]] == ["helper", "main", "main"]
    assert ["p-asl" in line["loss"] for line in found["frequent"]] == [True, False, False]
    labeled = (scenes_with_points.labels("train").dense() != -1).any(1).sum()
    saved = load_file(max((tmp_path / "frequent" / "checkpoints").glob("[0-9]*")) / "rank0.safetensors")
    assert saved["memory.prior.visits"] == labeled
    losses = {name: [line["loss"] for line in lines[1:]] for name, lines in found.items()}
    assert losses["rare"] == losses["without"] != losses["frequent"]

    stop_in_epoch(2, changed(prior_threshold=0.0), tmp_path / "broken", monkeypatch)
    resume(tmp_path / "broken")
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "frequent")


def test_pseudo_labels_of_a_stage_are_those_of_the_next(scenes_with_points, tmp_path):
    again = {"backbone": "pretrained", "head": "new", "memory": "last"}
    stages = [
        {"name": "supervised", "method": "patchml", "options": {}, "train": "all", "epochs": 1},
        {"name": "look", "train": "all", "epochs": 1, "start": {"backbone": "previous", "head": "best"}},
        {"name": "again", "train": "all", "epochs": 1, "start": again},
    ]
    options = {"patchcluster": {"precision": 0.2, "missed": 0.2, "scope": "all_unknown"}}
    lines = trained(scenes_with_points, tmp_path / "run", "patchml+patchcluster", stages, options=options)
    told = [line for line in (tmp_path / "run" / "log.txt").read_text().splitlines() if "patchcluster:" in line]
    assert len(told) == 1
    assert "against the truth: precision" in told[0]
    assert "decisions" not in lines[0]
    assert lines[1]["decisions"]["pseudo-labelled"] > 0
    assert lines[1]["decisions"] == lines[2]["decisions"]
    assert np.isfinite(lines[2]["loss"]["pseudo"])


def test_weak_and_strong_views_beside_points(scenes_with_points, tmp_path):
    options = {"fixmatch": {"scope": "all_unknown", "positive": 0.55, "negative": 0.45}}
    (line,) = trained(scenes_with_points, tmp_path / "run", "patchml+fixmatch", options=options)
    assert set(line["loss"]) == {"image", "patch", "fixmatch"}
    assert line["decisions"]["pseudo-labelled"] > 0


def test_weak_and_strong_views_from_a_cache(scenes_with_points, tmp_path):
    cache = tagfill.features(
        scenes_with_points,
        backbone="test_resnet",
        pretrained=False,
        image_size=64,
        views="eval,pairs:1",
        out=tmp_path / "cache",
    )
    stages = [{"input": "cache", "train": "head", "epochs": 1}]
    options = {"fixmatch": {"scope": "all_unknown", "positive": 0.55, "negative": 0.45}}
    settings = {"features": str(cache.folder), "options": options}
    (line,) = trained(scenes_with_points, tmp_path / "run", "patchml+fixmatch", stages, **settings)
    assert line["decisions"]["pseudo-labelled"] > 0
    assert line["loss"]["patch"] > 0


SCRIPT = Path(__file__).with_name("record_prototypes.py")
LISTS = ("keys", "values", "cells")


def recipe(material: Material, points: Path, **options: Any) -> dict[str, Any]:
    """One epoch that learns next to nothing, so that all look with the same network whatever their batches are."""
    stage = {"input": "cache", "epochs": 1, "optimizer": {"lr": 1e-30}}
    looked = {"precision": 0.2, "missed": 0.2, "scope": "all_unknown", **options}
    return {
        "dataset": str(points),
        "features": str(material.cache),
        "batch_size": 12,
        **material.settings,
        "method": "patchml+patchcluster",
        "options": {"patchcluster": looked},
        "stages": [stage],
    }


def found(folder: Path, rank: int) -> dict[str, np.ndarray]:
    """Prototypes of a process, and the pseudo-labels that it keeps."""
    newest = max((folder / "run" / "checkpoints").glob("[0-9]*"))
    state = load_file(newest / f"rank{rank}.safetensors")
    kept = {name: state[f"memory.found_labels.{name}"] for name in LISTS}
    return {**load_file(folder / f"prototypes-{rank}.safetensors"), **kept, "shard": state["shard.index"]}


def told(folder: Path) -> list[str]:
    """What the run says about its search: distances, counts, precision and recall."""
    lines = (folder / "run" / "log.txt").read_text(encoding="utf-8").splitlines()
    return [line.partition("patchcluster:")[2] for line in lines if "patchcluster:" in line]


def scores(folder: Path) -> list[float]:
    """What a run scores on the validation split, whose images its processes share."""
    return [json.loads(line)["val_mAP"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"limit": 8}, id="patch"),
        pytest.param({"features": "image"}, id="image", marks=pytest.mark.long),
    ],
)
def test_two_processes_find_what_one_finds(
    material: Material, points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    made = make_recipe(recipe(material, points, **options))
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (tmp_path / "recipe.yaml").write_text(made.to_yaml(), encoding="utf-8")
    command = [sys.executable, str(SCRIPT), str(tmp_path / "recipe.yaml"), str(two), "2"]
    both = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    monkeypatch.setattr(Prototypes, "share", recording(one))
    start(Dataset.open(points), made, out=one / "run")
    output, _ = both.communicate(timeout=PATIENCE)
    assert both.returncode == 0, output.decode()

    whole, parts = found(one, 0), [found(two, rank) for rank in (0, 1)]
    for part in parts:
        np.testing.assert_array_equal(part["counts"], whole["counts"])
        np.testing.assert_allclose(part["sums"], whole["sums"], rtol=1e-12)
        assert np.isin(part["keys"] // len(Dataset.open(points).classes), part["shard"]).all()
    np.testing.assert_array_equal(parts[0]["sums"], parts[1]["sums"])
    joined = {name: np.concatenate([part[name] for part in parts]) for name in LISTS}
    order = np.argsort(joined["keys"])
    assert 0 < len(parts[0]["keys"]) < len(whole["keys"])
    assert set(whole["values"].tolist()) == {0, 1}
    for name in LISTS:
        np.testing.assert_array_equal(joined[name][order], whole[name])
    assert scores(two) == scores(one)
    assert told(two) == told(one)
    assert len(told(one)) == 1
