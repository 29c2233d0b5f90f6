"""A small dataset with one label per image and its feature cache; a comparison on it with its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

import tagfill
from tagfill.experiments import Leaderboard
from tagfill.models import create_backbone

BACKBONE = {"backbone": "test_efficientnet", "image_size": 128}


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("material")
    full = tagfill.scenes.make(folder / "full", train=32, val=12, test=12, size=64)
    single = tagfill.protocols.single_positive(full, seed=1200).save(folder / "single")
    weights = create_backbone("test_efficientnet", image_size=128, seed=5).model.state_dict()
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "weights.safetensors")
    settings = {**BACKBONE, "pretrained": str(folder / "weights.safetensors")}
    cache = tagfill.features(single, out=folder / "cache", views="eval,flip", **settings)
    return {"dataset": single.folder, "features": cache.folder, **settings}


@pytest.fixture(scope="session")
def compared(material: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Leaderboard]:
    """A comparison of two seeds with its report, on features and with a head that has class maps."""
    out = tmp_path_factory.mktemp("comparison")
    settings = {name: value for name, value in material.items() if name != "dataset"}
    return out, tagfill.compare(material["dataset"], "role", out=out, seeds=2, epochs=2, jobs=1, **settings)
