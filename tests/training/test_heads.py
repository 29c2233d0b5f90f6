"""Heads in training: every head on cached features, their options, a transformer end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
import yaml
from typer.testing import CliRunner

import tagfill
from tagfill.cli.app import app
from tagfill.dataset import Dataset, from_records
from tagfill.errors import TagfillError
from tagfill.models import CamHead, Classifier, create
from tagfill.models.class_vectors import write_class_vectors
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


@pytest.mark.parametrize("head", ["linear", "cam", "tscam", "query", "dual"])
def test_a_head_learns_from_a_cache_and_is_evaluated_there_as_on_images(
    material: Material, tmp_path: Path, head: str
) -> None:
    run = train(material, tmp_path / "run", head)

    dataset = Dataset.open(material.full)
    cached = tagfill.evaluate(run, dataset, features=material.cache)
    assert cached.mean == pytest.approx(tagfill.evaluate(run, dataset).mean, abs=0.02)
    assert Classifier.load(run.model_folder).head_name == head


@pytest.mark.parametrize("head", ["tscam", "dual"])
def test_maps_of_other_heads_teach_a_method_that_needs_them(material: Material, tmp_path: Path, head: str) -> None:
    run = train(material, tmp_path / "run", head, method="en+scl")
    assert Classifier.load(run.model_folder).head_name == head


def test_a_run_begins_with_text_vectors_and_names_those_that_do_not_fit(material: Material, tmp_path: Path) -> None:
    classes = Dataset.open(material.single).classes
    vectors = np.random.default_rng(0).normal(size=(len(classes), 256))
    write_class_vectors(tmp_path / "texts.safetensors", classes, vectors)
    text = {"init": "text", "vectors": str(tmp_path / "texts.safetensors")}

    run = train(material, tmp_path / "run", "cam", lr=1e-9, head_options=text, select="last")

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    head = Classifier.load(run.model_folder).head
    np.testing.assert_allclose(head.fc.weight.detach().numpy(), 100 * unit, atol=1e-3)
    assert head.options == CamHead(1, 1).options  # what a model was before its training is not saved

    write_class_vectors(tmp_path / "other.safetensors", classes, vectors[:, :16])
    text["vectors"] = str(tmp_path / "other.safetensors")
    with pytest.raises(TagfillError, match="has 16 numbers, but features of the backbone test_efficientnet have 256"):
        train(material, tmp_path / "refused", "cam", head_options=text)


@pytest.mark.parametrize("head", ["linear", "query"])
def test_a_method_that_needs_maps_refuses_a_head_without(material: Material, tmp_path: Path, head: str) -> None:
    with pytest.raises(TagfillError, match=f"The {head} head has no class maps; choose cam or tscam"):
        train(material, tmp_path / "run", head, method="en+scl")


def without_class(material: Material, name: str) -> Path:
    """The dataset with a class that has no positive."""
    folder = material.single.with_name("unseen")
    shutil.copytree(material.single, folder, dirs_exist_ok=True)
    data = Dataset.open(folder)
    rows = data.rows()
    data.replace(annotations=rows.filter(pc.not_equal(rows["label"], name))).save(folder)
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


def train_with_options(material: Material, out: Path, **settings: Any) -> Run:
    settings = {"method": "an", "epochs": 1, "select": "last", **material.settings, **settings}
    return tagfill.train(material.single, out=out, features=material.cache, **settings)


def scores(run: Run, material: Material, **options: float) -> list[float]:
    data = tagfill.Dataset.open(material.full)
    return tagfill.evaluate(run, data, features=material.cache, **options).average_precision.tolist()


def weight(run: Run) -> torch.Tensor:
    return Classifier.load(run.model_folder).head.fc.weight


def test_boost_is_a_keyword_of_training(material: Material, tmp_path: Path) -> None:
    plain, boosted = (
        train_with_options(material, tmp_path / "plain"),
        train_with_options(material, tmp_path / "boosted", boost=5),
    )

    assert boosted.recipe.head_options == {"boost": 5}
    assert Classifier.load(boosted.model_folder).head.options["boost"] == 5.0
    assert not torch.equal(weight(plain), weight(boosted))


def test_boost_in_evaluation_alone_leaves_training_as_it_is(material: Material, tmp_path: Path) -> None:
    plain = train_with_options(material, tmp_path / "plain")
    later = train_with_options(material, tmp_path / "later", boost=50.0, boost_train=False)

    # the one from pooled features, the other from their cells in half precision
    torch.testing.assert_close(weight(plain), weight(later), rtol=0, atol=1e-4)
    assert scores(later, material, boost=50.0) == scores(later, material) != scores(later, material, boost=1.0)
    assert scores(later, material, boost=1.0) == pytest.approx(scores(plain, material), abs=0.02)
    assert scores(plain, material, boost=50.0) == pytest.approx(scores(later, material), abs=0.02)


def test_classes_without_a_positive_are_not_boosted_in_training(material: Material, tmp_path: Path) -> None:
    data = tagfill.Dataset.open(material.single)
    rows = data.rows()
    kept = [at for at, name in enumerate(rows["label"].to_pylist()) if name != data.classes[3]]
    few = data.replace(annotations=rows.take(kept)).save(tmp_path / "few")

    run = tagfill.train(
        few,
        method="an",
        out=tmp_path / "run",
        features=material.cache,
        epochs=1,
        boost=5.0,
        select="last",
        **material.settings,
    )

    expected = few.labels("train").positives > 0
    assert not expected[3]
    assert Classifier.load(run.model_folder).head.boosts.bool().tolist() == expected.tolist()


def test_flags_override_the_options_of_a_recipe(material: Material, tmp_path: Path) -> None:
    recipe = {
        **material.settings,
        "dataset": str(material.single),
        "method": "an",
        "features": str(material.cache),
        "head_options": {"boost": 3.0, "boost_eval": True},
        "stages": [{"input": "cache", "epochs": 1}],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    flags = ["--boost", "4,0.5", "--no-boost-train", "--quiet", "--out", str(tmp_path / "run")]

    done = CliRunner().invoke(app, ["train", "--recipe", str(tmp_path / "recipe.yaml"), *flags])

    assert done.exit_code == 0, done.output
    expected = {"boost": 4.0, "boost_eval": True, "boost_train": False, "boost_from": 0.5}
    assert Run.open(tmp_path / "run").recipe.head_options == expected


@pytest.mark.parametrize(("settings", "said"), [({"bost": 5.0}, "bost"), ({"boost": 0.5}, "must be at least 1")])
def test_options_that_make_no_sense_are_refused(
    material: Material, tmp_path: Path, settings: dict[str, float], said: str
) -> None:
    with pytest.raises(tagfill.TagfillError, match=said):
        train_with_options(material, tmp_path / "run", **settings)


def test_stem_and_batch_norms_can_rest(material: Material, tmp_path: Path) -> None:
    stage = {"input": "images", "train": "all", "freeze": ["stem", "batch-norm"], "epochs": 1}
    run = train_with_options(material, tmp_path / "run", stages=[stage])

    trained = Classifier.load(run.model_folder).backbone
    begin = tagfill.models.create_backbone("test_efficientnet", pretrained=str(material.weights), image_size=128)
    assert trained is not None
    changed = {
        name
        for name, value in begin.model.state_dict().items()
        if not torch.equal(value, trained.model.state_dict()[name])
    }
    assert "conv_stem.weight" not in changed
    assert "conv_head.weight" in changed
    assert not any("running" in name or "bn" in name for name in changed)


def test_freezing_parts_of_a_backbone_that_does_not_train_is_refused(material: Material, tmp_path: Path) -> None:
    with pytest.raises(tagfill.TagfillError, match="trains no part of the backbone"):
        train_with_options(material, tmp_path / "run", stages=[{"input": "cache", "freeze": ["stem"]}])


DEIT = ["--backbone", "deit_tiny_patch16_224", "--pretrained", "none", "--set", "image_size=64", "--set", "train=all"]
WHOLE = ["--set", "crop_scale=null", "--lr", "3e-4", "--epochs", "2", "--batch-size", "8", "--quiet"]


def run(*arguments: str) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Complete labels, and what a budget buys of them as tags and as points."""
    folder = tmp_path_factory.mktemp("deit")
    full = tagfill.scenes.make(folder / "full", train=24, val=6, test=8, size=64)
    for kind in ("I", "SP"):
        tagfill.protocols.budget(full, percent=50, kind=kind, seed=0).save(folder / kind)
    coarse(full).save(folder / "halves")
    return {name: folder / name for name in ("I", "SP", "halves")}


def coarse(full: Dataset) -> Dataset:
    """The left or the right half of the image in place of a mask, so that maps of 4×4 cells can be right."""
    none = {"rle": None, "rle_height": None, "rle_width": None}
    rows = [
        {**row, **none, "kind": "box", "x": 0.25 + 0.5 * (row["x"] > 0.5), "y": 0.5, "w": 0.5, "h": 1.0}
        if row["kind"] == "mask"
        else row
        for row in full.rows().to_pylist()
    ]
    return full.replace(annotations=from_records(rows), folder=None)


def trained(data: dict[str, Path], kind: str, out: Path, *flags: str) -> list[dict[str, Any]]:
    run("train", str(data[kind]), *DEIT, *WHOLE, "--out", str(out), *flags)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_the_class_token_alone_learns_and_has_no_maps(data: dict[str, Path], tmp_path: Path) -> None:
    flags = ["--method", "ignore", "--head", "linear", "--set", "head_options.pool=token"]
    first, last = trained(data, "I", tmp_path / "run", *flags)

    assert last["loss"]["ignore"] < first["loss"]["ignore"]
    assert 0 < run("evaluate", str(tmp_path / "run"), str(data["halves"]))["mAP"] < 100
    refused = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(data["halves"]), "--localize"])
    assert isinstance(refused.exception, TagfillError)
    assert "linear head has no class maps" in str(refused.exception)


@pytest.mark.parametrize(("kind", "weight"), [("I", "0"), ("SP", "5")])
def test_maps_and_coupled_maps_of_tags_and_of_points(
    data: dict[str, Path], tmp_path: Path, kind: str, weight: str
) -> None:
    flags = ["--method", "patchml", "--head", "tscam", "--set", f"options.patchml.w_patch={weight}"]
    first, last = trained(data, kind, tmp_path / "run", *flags)

    assert set(last["loss"]) == ({"image", "patch"} if kind == "SP" else {"image"})
    assert sum(last["loss"].values()) < sum(first["loss"].values())
    scores = {
        maps: run("evaluate", str(tmp_path / "run"), str(data["halves"]), "--localize", "--maps", maps)
        for maps in ("minmax", "coupled")
    }
    assert scores["minmax"]["mAP"] == scores["coupled"]["mAP"] > 0
    for found in scores.values():
        assert 0 < found["mAP_loc"] <= found["mAP"]
