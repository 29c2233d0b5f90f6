"""A run that trains only a head caches features by itself, and is then the same as one with a cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest
import torch
from typer.testing import CliRunner

import tagfill
from tagfill.cli.app import app
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.training import Run, automatic_cache
from tagfill.training.recipe import Stage

from .conftest import Material


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "home"))
    return tmp_path / "home" / "features"


@pytest.mark.usefixtures("one_thread")  # the last bits of features depend on it
def test_results_are_those_of_an_explicit_cache(material: Material, tmp_path: Path, cache_home: Path) -> None:
    cache = tagfill.features(material.single, out=tmp_path / "cache", **material.settings)
    given = tagfill.train(
        material.single, method="an", out=tmp_path / "given", features=cache, epochs=2, **material.settings
    )
    own = tagfill.train(material.single, method="an", out=tmp_path / "own", cache=True, epochs=2, **material.settings)

    for name in ("metrics.jsonl", "best/model.safetensors"):
        assert (own.folder / name).read_bytes() == (given.folder / name).read_bytes()
    (made,) = cache_home.iterdir()
    assert own.recipe.features == str(made)


def test_the_command_line_caches_unless_told_not_to(material: Material, tmp_path: Path, cache_home: Path) -> None:
    small = ["train", str(material.single), *material.flags, "--epochs", "1", "--quiet"]

    assert CliRunner().invoke(app, [*small, "--no-cache", "--out", str(tmp_path / "images")]).exit_code == 0
    assert not cache_home.exists()
    assert CliRunner().invoke(app, [*small, "--out", str(tmp_path / "cached")]).exit_code == 0

    assert Run.open(tmp_path / "images").recipe.stages[0].input == "images"
    assert Run.open(tmp_path / "cached").recipe.stages[0].input == "cache"


def test_methods_share_one_cache(material: Material, tmp_path: Path, cache_home: Path) -> None:
    tagfill.compare(
        material.single, "an", out=tmp_path, cache=True, seeds=1, epochs=1, jobs=1, report=False, **material.settings
    )
    (made,) = cache_home.iterdir()
    assert {Run.open(path).recipe.features for path in (tmp_path / "runs").iterdir()} == {str(made)}


@pytest.mark.usefixtures("one_thread")
def test_a_cache_that_grew_trains_the_same_model_as_one_made_at_once(
    material: Material, tmp_path: Path, cache_home: Path
) -> None:
    """Ten photos are added, five of them to the training split, and five move from there to `val`."""
    whole = Dataset.open(material.single)
    splits = whole.split_of_images()
    splits[-5:], splits[:5] = "train", "val"
    grown = whole.with_splits(splits).replace(folder=None).save(tmp_path / "grown")
    few = whole.replace(images=whole.images.slice(0, len(whole) - 10), folder=None)
    known = pc.is_in(few.rows()["image"], few.images["image"])
    few.replace(annotations=few.rows().filter(known), truth=None).save(tmp_path / "few")
    settings = {"method": "an", "epochs": 1, **material.settings}

    tagfill.train(tmp_path / "few", out=tmp_path / "first", cache=True, **settings)
    own = tagfill.train(tmp_path / "grown", out=tmp_path / "own", cache=True, **settings)
    at_once = tagfill.features(grown, out=tmp_path / "at once", **material.settings)
    given = tagfill.train(tmp_path / "grown", out=tmp_path / "given", features=at_once, **settings)

    assert len(list(cache_home.iterdir())) == 1
    for name in ("metrics.jsonl", "best/model.safetensors"):
        assert (own.folder / name).read_bytes() == (given.folder / name).read_bytes()


@pytest.mark.parametrize(
    "stage", [Stage(train="all"), Stage(strong=True), Stage(crop_scale=None), Stage(flip=False), Stage(input="cache")]
)
def test_other_stages_stay_on_images(stage: Stage) -> None:
    recipe = tagfill.training.Recipe(dataset="photos", method="an")
    assert automatic_cache.can_cache(recipe)
    assert not automatic_cache.can_cache(recipe.model_copy(update={"stages": [stage]}))


def test_a_full_disk_is_left_alone(
    material: Material, tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(automatic_cache.shutil, "disk_usage", lambda path: Usage)

    run = tagfill.train(material.single, method="an", out=tmp_path / "run", cache=True, epochs=1, **material.settings)

    assert run.recipe.features is None
    assert not cache_home.exists()


@pytest.mark.parametrize("change", [{"method": "rolle"}, {"device": "cuda"}, {"options": {"an": {"wieght": 1}}}])
def test_what_is_wrong_from_the_start_leaves_nothing_behind(
    change: dict[str, object], material: Material, tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    for cache in (False, True):
        with pytest.raises(TagfillError):
            tagfill.train(
                material.single, out=tmp_path / "run", cache=cache, **{"method": "an", **material.settings, **change}
            )

    assert not (tmp_path / "run").exists()
    assert not cache_home.exists()
