"""Every head trains on cached features, and is evaluated there as on images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

import tagfill
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.models import CamHead, Classifier, create
from tagfill.training import Run
from tagfill.training.evaluation import LoadedModel

from .conftest import Material


def train(
    material: Material, out: Path, head: str, method: str = "an", dataset: Path | None = None, **changes: Any
) -> Run:
    return tagfill.train(
        dataset or material.single,
        out=out,
        method=method,
        head=head,
        epochs=1,
        batch_size=32,
        **{"features": material.cache, **material.settings, **changes},
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


def without_class(material: Material, name: str) -> Path:
    """The dataset, where nobody has seen one of its classes."""
    folder = material.single.with_name("unseen")
    shutil.copytree(material.single, folder, dirs_exist_ok=True)
    rows = pq.read_table(folder / "annotations.parquet")
    seen = pc.not_equal(rows["label"].cast("string"), name)
    pq.write_table(rows.filter(seen), folder / "annotations.parquet")
    return folder


def test_a_boosted_head_trains_on_cells_and_leaves_unseen_classes_alone(material: Material, tmp_path: Path) -> None:
    name = Dataset.open(material.single).classes[3]
    dataset = without_class(material, name)

    run = train(material, tmp_path / "run", "cam", dataset=dataset, select="last", head_options={"boost": 5.0})

    head = Classifier.load(run.model_folder).head
    assert isinstance(head, CamHead)
    assert head.boosts is not None
    assert head.boosts.tolist() == [float(number != 3) for number in range(20)]
    assert tagfill.evaluate(run, Dataset.open(material.full), features=material.cache).images == 24


def test_a_head_on_class_tokens_learns_from_a_cache_and_gives_the_logits_of_images(
    material: Material, tmp_path: Path
) -> None:
    dataset, backbone = Dataset.open(material.single), {"backbone": "test_vit", "pretrained": False, "image_size": 64}
    cache = tagfill.features(dataset, **backbone, views="eval,flip", out=tmp_path / "cache")

    run = train(material, tmp_path / "run", "linear", head_options={"pool": "token"}, features=cache.folder, **backbone)

    logits = []
    for features in (cache.folder, None):
        model = LoadedModel.open(run, dataset, features=features)
        logits.append(torch.cat([prediction.logits for _, prediction in model.predict("val")]))
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
    untrained = create("test_vit", "linear", dataset.classes, image_size=64, pool="token")
    assert not torch.equal(Classifier.load(run.model_folder).head.fc.weight, untrained.head.fc.weight)


def test_a_cache_without_class_tokens_is_refused_for_them(material: Material, tmp_path: Path) -> None:
    backbone = {"backbone": "test_vit", "pretrained": False, "image_size": 64}
    cache = tagfill.features(Dataset.open(material.single), **backbone, views="eval", out=tmp_path / "cache")
    manifest = json.loads((cache.folder / "manifest.json").read_text())
    (cache.folder / "manifest.json").write_text(json.dumps(manifest | {"tokens": False}))
    with pytest.raises(TagfillError, match="has no class tokens, which pool=token needs"):
        train(material, tmp_path / "run", "linear", head_options={"pool": "token"}, features=cache.folder, **backbone)
