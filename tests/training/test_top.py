"""Training the top of a backbone from a cache of an inner stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import tagfill
from tagfill.cli.app import app
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.training import Run, make_recipe, resume, start

from .conftest import IMAGE_SIZE, Material
from .processes import outcome, run_tagfill
from .stopping import stop_in_epoch

AT = "blocks.3"
ABOVE = ("backbone.model.blocks.4.", "backbone.model.conv_head.", "backbone.model.bn2.", "head.")


@pytest.fixture(scope="module")
def inner(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of an inner stage, of whole images and without rounding."""
    out = tmp_path_factory.mktemp("inner") / "cache"
    return tagfill.features(
        material.single,
        **material.settings,
        views="eval",
        at=AT,
        dtype="float32",
        out=out,  # type: ignore[arg-type]
    ).folder


def recipe(material: Material, features: Path | None, **stage: Any) -> Any:
    stage = {"input": "images" if features is None else "cache", "train": "top", "epochs": 2, **stage}
    content = {"dataset": str(material.single), "features": None if features is None else str(features)}
    return make_recipe({**content, "method": "an", "at": AT, "stages": [stage], **material.settings})


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.model_folder / "model.safetensors")


@pytest.mark.parametrize("frozen", [["batch-norm"], []], ids=["frozen norms", "norms train"])
def test_a_run_on_the_cache_is_one_on_images_with_the_lower_stages_frozen(
    material: Material, inner: Path, tmp_path: Path, frozen: list[str]
) -> None:
    """Whole images, so that both see the same views; sums in another order differ in their last bits."""
    data, shared = Dataset.open(material.single), {"freeze": frozen, "optimizer": {"name": "sgd", "lr": 0.01}}
    cached = start(data, recipe(material, inner, **shared), out=tmp_path / "cached")
    images = start(data, recipe(material, None, crop_scale=None, flip=False, **shared), out=tmp_path / "images")
    found, expected, origin = weights(cached), weights(images), load_file(material.weights)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}")
        if not name.startswith(ABOVE):
            assert torch.equal(value, origin[name.removeprefix("backbone.model.")])
    moved = {name for name in found if not name.startswith("head.") and name.startswith(ABOVE)}
    moved = {name for name in moved if not torch.equal(found[name], origin[name.removeprefix("backbone.model.")])}
    assert "backbone.model.conv_head.weight" in moved
    assert ("backbone.model.bn2.running_mean" in moved) == (not frozen)


def test_the_saved_model_is_the_whole_network(material: Material, inner: Path, tmp_path: Path) -> None:
    run = tagfill.train(
        material.single,
        method="patchml",  # needs class maps
        features=inner,
        train="top",
        epochs=1,
        out=tmp_path / "run",
        **material.settings,  # type: ignore[arg-type]
    )
    stage = run.recipe.stages[0]
    assert (stage.train, stage.freeze, stage.optimizer.lr, stage.optimizer.head_multiplier) == (
        *("top", ("batch-norm",), 1e-4, 10),
    )
    data = Dataset.open(material.single)
    by_cache = tagfill.evaluate(run, data, split="test", features=inner)
    by_images = tagfill.evaluate(run, data, split="test")
    assert by_cache.mean == pytest.approx(by_images.mean, abs=1e-6)


def test_a_run_that_was_stopped_ends_with_the_same_bytes(
    material: Material, inner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With heatmaps, an average of the weights, and statistics of batch norms that change."""
    chosen = recipe(material, inner, average=0.9, method="en+scl", options={"en": {"expected": 2.0}})
    left_alone = start(Dataset.open(material.single), chosen, out=tmp_path / "left alone")
    stop_in_epoch(2, chosen, tmp_path / "stopped", monkeypatch)
    assert outcome(resume(tmp_path / "stopped").folder) == outcome(left_alone.folder)
    averaged = weights(left_alone)
    origin = load_file(material.weights)
    assert all(
        torch.equal(value, origin[name.removeprefix("backbone.model.")])
        for name, value in averaged.items()
        if not name.startswith(ABOVE)
    )


@pytest.mark.long
def test_two_processes_train_the_same_weights(material: Material, inner: Path, tmp_path: Path) -> None:
    """Resumed from the end of an epoch, they end with the same bytes, which they only do if they share gradients."""
    words = ["train", str(material.single), *material.flags, "--features", str(inner), "--train", "top"]
    words += ["--method", "an", "--epochs", "2", "--processes", "2", "--out"]
    for name in ("one", "two"):
        run_tagfill(*words, str(tmp_path / name))
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")
    assert Run.open(tmp_path / "one").finished


def test_the_command_line_caches_the_stage_by_itself(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "home"))
    words = ["train", str(material.single), *material.flags, "--train", "top", "--epochs", "1", "--quiet"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    run = Run.open(tmp_path / "run")
    assert run.recipe.features is not None
    cache = tagfill.FeatureCache.open(run.recipe.features)
    assert (cache.at, cache.manifest.preprocessing.size) == (AT, (IMAGE_SIZE, IMAGE_SIZE))
    chosen = run.description()["auto"]
    assert len(chosen["members"]) == 1
    assert "Models whose backbone trains cannot be combined" in chosen["reason"]


def test_what_cannot_train_is_refused(material: Material, inner: Path, tmp_path: Path) -> None:
    data = Dataset.open(material.single)
    with pytest.raises(TagfillError, match=rf"only the head can train; make one of .* 'tagfill features --at {AT}'"):
        start(data, recipe(material, material.cache), out=tmp_path / "run")
    other = recipe(material, inner).model_copy(update={"at": "blocks.2"})
    with pytest.raises(TagfillError, match=rf"holds the stage {AT}, not blocks\.2"):
        start(data, other, out=tmp_path / "run", force=True)
    with pytest.raises(TagfillError, match="trains only what lies above the stem; leave out freeze: stem"):
        recipe(material, inner, freeze=["stem"])
    with pytest.raises(TagfillError, match="cannot train a whole backbone on cached features; set train: top, or"):
        recipe(material, inner, train="all")
