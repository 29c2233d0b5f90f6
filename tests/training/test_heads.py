"""Every head trains on cached features, and is evaluated there as on images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tagfill
from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.models import Classifier
from tagfill.training import Run

from .conftest import Material


def train(material: Material, out: Path, head: str, method: str = "an", **changes: Any) -> Run:
    return tagfill.train(
        material.single,
        out=out,
        method=method,
        head=head,
        features=material.cache,
        epochs=1,
        batch_size=32,
        **{**material.settings, **changes},
    )


@pytest.mark.parametrize("head", ["linear", "cam", "tscam", "query"])
def test_a_head_learns_from_a_cache_and_is_evaluated_there_as_on_images(
    material: Material, tmp_path: Path, head: str
) -> None:
    run = train(material, tmp_path / "run", head)

    dataset = Dataset.open(material.full)
    cached = tagfill.evaluate(run, dataset, features=material.cache)
    assert cached.mean == pytest.approx(tagfill.evaluate(run, dataset).mean, abs=0.02)
    assert Classifier.load(run.model_folder).head_name == head


def test_maps_of_tscam_teach_a_method_that_needs_them(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run", "tscam", method="en+scl")
    assert Classifier.load(run.model_folder).head_name == "tscam"


@pytest.mark.parametrize("head", ["linear", "query"])
def test_a_method_that_needs_maps_refuses_a_head_without(material: Material, tmp_path: Path, head: str) -> None:
    with pytest.raises(TagfillError, match=f"The {head} head has no class maps; choose cam or tscam"):
        train(material, tmp_path / "run", head, method="en+scl")
