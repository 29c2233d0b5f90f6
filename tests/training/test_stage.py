"""Stages: what they start from, and what methods need from the data."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

import tagfill
from tagfill import methods
from tagfill.contract import Batch, Prediction
from tagfill.data import FeatureCache, PixelSource
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import EVAL
from tagfill.memory import sub_state
from tagfill.memory.estimates import DenseAdam
from tagfill.methods import BaseMethod
from tagfill.methods.fixmatch import FixMatch
from tagfill.models import Classifier, create_backbone
from tagfill.training import Run, stage
from tagfill.training.checkpoints import open_newest

from .conftest import BACKBONE, IMAGE_SIZE, Material


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


def linear_init(material: Material, out: Path, first: dict[str, str] | None = None) -> Run:
    """Two linear epochs at a rate that makes estimates certain, and one of everything at a rate of almost zero."""
    linear = {"name": "linear", "input": "cache", "epochs": 2, "optimizer": {"lr": 1.0}, **(first or {})}
    everything = {
        "name": "everything",
        "input": "images",
        "train": "all",
        "epochs": 1,
        "crop_scale": None,
        "optimizer": {"lr": 1e-12},
        "start": {"head": "best", "memory": "best"},
    }
    return tagfill.train(
        material.single,
        out=out,
        method="role",
        features=material.cache,
        batch_size=16,
        stages=[linear, everything],
        **material.settings,
    )


@pytest.fixture(scope="module")
def run(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return linear_init(material, tmp_path_factory.mktemp("linear-init") / "run")


def final(run: Run) -> dict[str, torch.Tensor]:
    checkpoint, _ = open_newest(run.checkpoints)
    return checkpoint.of_rank(0)


def test_the_estimates_of_the_best_linear_epoch_are_carried_over(run: Run) -> None:
    saved = load_file(run.folder / "memory" / "best" / "rank0" / "memory.safetensors")
    adam = DenseAdam(saved["estimates.values"])  # each row as of its last visit
    adam.load_state_dict(sub_state(saved, "estimates.adam"))
    kept = adam.read(torch.arange(len(saved["estimates.values"])))
    bound = math.log((1 - 1e-5) / 1e-5)

    assert kept.abs().max() > bound
    torch.testing.assert_close(final(run)["memory.estimates.values"], kept.clamp(-bound, bound), rtol=0, atol=1e-4)


def test_the_optimizer_of_the_table_starts_over(run: Run) -> None:
    steps = math.ceil(101 / 16)

    assert int(final(run)["memory.estimates.adam.step"]) == steps


def test_both_stages_were_trained(run: Run) -> None:
    assert [line["stage"] for line in run.metrics()] == ["linear", "linear", "everything"]


def test_a_linear_stage_without_a_table_leaves_a_new_one(material: Material, tmp_path: Path) -> None:
    run = linear_init(material, tmp_path / "run", first={"method": "an-ls"})

    values = final(run)["memory.estimates.values"].sigmoid()
    assert values.min() == pytest.approx(0.4, abs=0.01)


def test_truth_of_a_simulated_dataset_is_complete_and_agrees_with_what_was_kept(material: Material) -> None:
    part = Dataset.open(material.single)

    truth = stage.true_labels(part, "train")

    kept = part.labels("train").dense()
    assert truth.complete()
    assert np.array_equal(truth.dense()[kept == 1], kept[kept == 1])


def test_a_dataset_without_truth_says_so(material: Material) -> None:
    part = Dataset.open(material.single).replace(truth=None)

    with pytest.raises(TagfillError, match="needs the complete labels"):
        stage.true_labels(part, "train")


def test_features_by_the_backbone_equal_those_of_its_cache(material: Material) -> None:
    part, cache = Dataset.open(material.single), FeatureCache.open(material.cache)
    weights = str(material.weights)
    backbone = create_backbone(cache.manifest.backbone, pretrained=weights, image_size=cache.preprocessing.size[0])
    source = PixelSource(part, backbone.preprocessing.size, EVAL, seed=0, workers=0)

    looked = stage.compute_frozen_features(backbone, source, "train", len(part.split("train")))

    assert np.allclose(looked, stage.cached_features(part, cache, "train"), atol=1e-5)


class Watching(BaseMethod):
    """Keeps what it is given; learns that all logits are zero."""

    seen: ClassVar[list[tuple[Batch, Prediction]]]

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        self.seen.append((batch, prediction))
        return {"zero": prediction.logits.square().mean()}


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    def needing(*needs: str) -> list[tuple[Batch, Prediction]]:
        seen: list[tuple[Batch, Prediction]] = []
        watching = type("Watching", (Watching,), {"needs": frozenset(needs), "seen": seen})
        monkeypatch.setitem(methods.METHODS, "watching", watching)
        return seen

    return needing


def train_watching(material: Material, out: Path, dataset: Path, **settings: Any) -> None:
    tagfill.train(dataset, method="watching", epochs=1, batch_size=16, out=out, **{**material.settings, **settings})


def few_labels(material: Material, out: Path) -> Dataset:
    """Labels of twenty training images only."""
    data = Dataset.open(material.single)
    silent = set(data.names(data.split("train"))[20:])
    rows = data.rows()
    return data.replace(
        annotations=rows.take([at for at, name in enumerate(rows["image"].to_pylist()) if name not in silent])
    ).save(out)


def test_pairs_of_views_are_predicted_together(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch("weak+strong")

    train_watching(material, tmp_path / "run", material.single, features=None)

    assert {batch.views for batch, _ in seen} == {("weak", "strong")}
    assert all(len(prediction.logits) == 2 * len(batch.index) == len(batch.geometry) for batch, prediction in seen)
    assert sum(len(batch.index) for batch, _ in seen) == 101


def test_pairs_of_views_come_from_a_cache_too(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch("weak+strong")
    cache = tagfill.features(
        Dataset.open(material.single),
        backbone=BACKBONE,
        pretrained=str(material.weights),
        image_size=IMAGE_SIZE,
        views="eval,pairs:1",
        out=tmp_path / "cache",
    )

    train_watching(material, tmp_path / "run", material.single, features=cache)

    assert {batch.views for batch, _ in seen} == {("weak", "strong")}
    assert all(len(prediction.logits) == 2 * len(batch.index) for batch, prediction in seen)


def test_half_of_a_batch_has_no_label_for_a_method_that_needs_such_images(
    material: Material, tmp_path: Path, watch: Any
) -> None:
    seen = watch("unlabeled")
    few_labels(material, tmp_path / "few")

    train_watching(material, tmp_path / "run", tmp_path / "few", features=material.cache)

    assert {int((batch.labels >= 0).any(1).sum()) for batch, _ in seen} == {8}


@pytest.mark.parametrize(("scope", "labelled"), [("unlabeled_images", {8}), ("all_unknown", None)])
def test_fixmatch_gets_as_many_images_without_a_label_as_with_one_unless_it_labels_all(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, labelled: set[int] | None
) -> None:
    seen: list[int] = []

    class Watched(FixMatch):
        def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
            seen.append(int((batch.labels >= 0).any(1).sum()))
            return super().loss(batch, prediction)

    monkeypatch.setitem(methods.METHODS, "watching", Watched)
    few_labels(material, tmp_path / "few")

    train_watching(material, tmp_path / "run", tmp_path / "few", options={"watching": {"scope": scope}})

    assert set(seen) == labelled if labelled else sum(seen) == 20


def test_all_images_are_mixed_where_none_is_without_a_label(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch("unlabeled")

    train_watching(material, tmp_path / "run", material.single, features=material.cache)

    assert sum(len(batch.index) for batch, _ in seen) == 101


@pytest.mark.parametrize("cached", [True, False])
def test_marks_come_with_their_images(material: Material, tmp_path: Path, watch: Any, cached: bool) -> None:
    seen = watch("marks")

    train_watching(material, tmp_path / "run", material.full, features=material.cache if cached else None)

    assert sum(len(batch.marks) for batch, _ in seen if batch.marks is not None) > 101
    for batch, _ in seen:
        assert batch.marks is not None
        assert (batch.labels[batch.marks.image, batch.marks.label] == 1).all()


def test_methods_get_marks_only_if_they_need_them(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch()

    train_watching(material, tmp_path / "run", material.full, features=material.cache)

    assert all(batch.marks is None for batch, _ in seen)
