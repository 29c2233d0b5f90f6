"""Runs of two epochs on 32 scenes, and the tables that an analysis wrote."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

import tagfill
from tagfill.experiments.runs import save_complete_dataset
from tagfill.models import create_backbone

SETTINGS: dict[str, Any] = {"backbone": "test_efficientnet", "image_size": 128, "batch_size": 8}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs of two epochs on 32 scenes with one label each, by name."""
    folder = tmp_path_factory.mktemp("runs")
    whole = tagfill.scenes.make(folder / "scenes", train=32, val=12, test=12, size=64)
    single = tagfill.protocols.single_positive(whole, seed=1200).save(folder / "single")
    half = tagfill.protocols.random_entries(whole, proportion=0.5, seed=1).save(folder / "half")
    full = tagfill.Dataset.open(save_complete_dataset(single, folder / "full"))
    state = create_backbone("test_efficientnet", image_size=128, seed=5).model.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "weights.safetensors")
    weights = {**SETTINGS, "pretrained": str(folder / "weights.safetensors")}
    cache = tagfill.features(
        single, out=folder / "cache", views="eval,flip", **{k: v for k, v in weights.items() if k != "batch_size"}
    )
    common = {**weights, "features": cache.folder, "epochs": 2, "lr": 0.01}
    everything = {"record": ["decisions", "scores", "heatmaps"]}
    without = {"options": {"scl": {"weight": 0.0}}}
    tagfill.train(full, method="bce", out=folder / "bce", **common)
    tagfill.train(single, method="an", out=folder / "an", **common, **everything)
    tagfill.train(single, method="an", out=folder / "an-1", seed=1, **common)
    tagfill.train(half, method="an", out=folder / "an-half", **common)
    tagfill.train(single, method="role", out=folder / "role", **common, **everything)
    tagfill.train(single, method="ll-r", out=folder / "ll-r", boost=5.0, **common, **everything)
    tagfill.train(single, method="en+scl", out=folder / "en-scl", **common, **everything)
    tagfill.train(single, method="en+scl", out=folder / "en-scl-0", **common, **everything, **without)
    tagfill.train(single, method="an", head="query", head_options={"width": 16}, out=folder / "query", **common)
    return {path.parent.name: str(path.parent) for path in folder.glob("*/run.json")}


def read_table(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a CSV file that an analysis wrote."""
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
