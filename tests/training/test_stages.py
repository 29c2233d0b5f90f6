"""Stages: head first on cached features, then everything on images."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import tagfill
from tagfill.models import Classifier
from tagfill.training import Run

from .conftest import Material


def two_stages(material: Material, **second: Any) -> dict[str, Any]:
    stages = [
        {"name": "head", "input": "cache", "train": "head", "epochs": 1},
        {
            "name": "everything",
            "input": "images",
            "train": "all",
            "epochs": 1,
            "optimizer": {"lr": 1e-4},
            "start": {"head": "last", "memory": "last"},
            **second,
        },
    ]
    return {
        **material.settings,
        "dataset": str(material.single),
        "features": str(material.cache),
        "method": "en+scl",
        "batch_size": 16,
        "stages": stages,
    }


def train(material: Material, out: Path, **second: Any) -> Run:
    settings = two_stages(material, **second)
    return tagfill.train(settings.pop("dataset"), out=out, **settings)


@pytest.mark.long
def test_ranks_agree_on_gradients_in_both_stages(material: Material, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(two_stages(material)))
    script = Path(__file__).with_name("record_gradients.py")

    subprocess.run([sys.executable, script, recipe, tmp_path, "2"], check=True, capture_output=True, timeout=240)

    first, second = ((tmp_path / f"gradients-{rank}.txt").read_text().splitlines() for rank in (0, 1))
    assert first == second
    tensors = {line.split()[0]: int(line.split()[1]) for line in first}
    assert tensors["1"] == 2  # weight and bias of the head
    assert tensors["2"] > 20  # and all of the backbone
    assert len(set(first)) == len(first)


def test_second_stage_starts_from_the_last_head(material: Material, tmp_path: Path) -> None:
    frozen = train(material, tmp_path / "frozen", optimizer={"lr": 1e-12}, train="head")

    only_head = tagfill.train(
        material.single,
        out=tmp_path / "head",
        method="en+scl",
        features=material.cache,
        epochs=1,
        batch_size=16,
        **material.settings,
    )

    weights = [Classifier.load(run.model_folder).head.state_dict()["fc.weight"] for run in (frozen, only_head)]
    torch.testing.assert_close(*weights)


def test_second_stage_trains_the_backbone(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run")

    trained = Classifier.load(run.model_folder).backbone
    start = tagfill.models.create_backbone("test_efficientnet", pretrained=str(material.weights), image_size=128)
    assert trained is not None
    assert not torch.equal(trained.model.conv_stem.weight, start.model.conv_stem.weight)


def test_new_head_can_go_on_a_trained_backbone(material: Material, tmp_path: Path) -> None:
    third = {"name": "third", "input": "images", "train": "head", "epochs": 1, "start": {"backbone": "previous"}}
    settings = two_stages(material)
    settings["stages"] = [*settings["stages"], third]

    run = tagfill.train(settings.pop("dataset"), out=tmp_path / "run", select="last", **settings)

    trained = Classifier.load(run.model_folder).backbone
    start = tagfill.models.create_backbone("test_efficientnet", pretrained=str(material.weights), image_size=128)
    assert trained is not None
    assert not torch.equal(trained.model.conv_stem.weight, start.model.conv_stem.weight)


def test_new_head_does_not_depend_on_the_first_stage(material: Material, tmp_path: Path) -> None:
    first = train(material, tmp_path / "a", start={"head": "new"}, train="head")
    lines = first.metrics()

    assert [line["stage"] for line in lines] == ["head", "everything"]
    assert lines[1]["loss"]["en"] > lines[0]["loss"]["en"] * 0.8  # it learns from scratch again


@pytest.mark.parametrize("change", [{"input": "cache"}, {"name": "head"}])
def test_impossible_stages_are_refused(material: Material, tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(tagfill.TagfillError, match="stage"):
        train(material, tmp_path / "run", **change)
