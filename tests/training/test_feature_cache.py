"""Runs on a feature cache: missing images, pairs of views, and views that are added or removed later."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagfill
from tagfill.dataset import Dataset
from tagfill.io import sha256
from tagfill.training import Saving, make_recipe, resume, start

from .conftest import Material
from .processes import outcome
from .stopping import stop_in_epoch


@pytest.fixture(scope="module")
def damaged(material: Material, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, tagfill.FeatureCache]:
    """A dataset with two training images that do not decode, and a cache with pairs that was made from it."""
    folder = tmp_path_factory.mktemp("damaged")
    data = Dataset.open(material.single)
    shutil.copytree(data.root, folder / "images")
    for name in data.names(data.split("train"))[3:5]:
        (folder / "images" / name).write_bytes(b"not an image")
    data = data.replace(root=folder / "images").save(folder / "data")
    cache = tagfill.features(
        data,
        **material.settings,
        views="eval,pairs:1",
        out=folder / "cache",
        max_bad_images=0.1,  # type: ignore[arg-type]
    )
    return data, cache


@pytest.mark.parametrize("method", ["an", "fixmatch"])
def test_images_left_out_of_the_cache_are_left_out_and_listed(
    damaged: tuple[Dataset, tagfill.FeatureCache], material: Material, tmp_path: Path, method: str
) -> None:
    data, cache = damaged
    name = "an+fixmatch" if method == "fixmatch" else method
    run = tagfill.train(
        data, method=name, features=cache, epochs=1, out=tmp_path / "run", max_bad_images=0.1, **material.settings
    )
    lines = (run.folder / "bad-images.txt").read_text().splitlines()
    assert sorted(line.split("\t")[0] for line in lines) == sorted(data.names(data.split("train"))[3:5])
    assert tagfill.evaluate(run, data, split="train", features=cache.folder).images == 99


def test_too_many_of_them_stop_the_run(
    damaged: tuple[Dataset, tagfill.FeatureCache], material: Material, tmp_path: Path
) -> None:
    data, cache = damaged
    with pytest.raises(tagfill.TagfillError, match="2 images cannot be decoded, more than the 1"):
        tagfill.train(
            data, method="an", features=cache, epochs=1, out=tmp_path / "run", max_bad_images=0.01, **material.settings
        )


@pytest.fixture
def recipe(material: Material, tmp_path: Path) -> Any:
    """Of a run on a cache of its own."""
    shutil.copytree(material.cache, tmp_path / "cache")
    return make_recipe(
        {
            "dataset": str(material.single),
            "features": str(tmp_path / "cache"),
            "method": "role",
            "stages": [{"input": "cache", "epochs": 3}],
            **material.settings,
        }
    )


def test_a_view_that_is_added_before_resuming_is_not_drawn(
    material: Material, recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(Dataset.open(material.single), recipe, out=tmp_path / "unbroken", saving=Saving(every_steps=2))
    stop_in_epoch(2, recipe, tmp_path / "broken", monkeypatch)
    cache = tagfill.features(
        Dataset.open(material.single),
        **material.settings,
        views="eval,crops:3",
        out=tmp_path / "cache",  # type: ignore[arg-type]
    )
    assert len(cache.weak_views) == 5

    resume(tmp_path / "broken", saving=Saving(every_steps=2))

    assert outcome(tmp_path / "broken") == outcome(tmp_path / "unbroken")
    start(Dataset.open(material.single), recipe, out=tmp_path / "new", saving=Saving(every_steps=2))
    assert outcome(tmp_path / "new") != outcome(tmp_path / "unbroken")  # a new run draws from all


def changed(view: str) -> str:
    return rf"The view '{view}' of the feature cache .* has changed since the run started"


def test_a_view_that_was_replaced_by_another_is_refused(
    recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in_epoch(2, recipe, tmp_path / "run", monkeypatch)
    path = tmp_path / "cache" / "views" / "flip" / "pooled.npy"
    np.save(path, np.load(path) + 1)
    manifest = json.loads((tmp_path / "cache" / "manifest.json").read_text())
    manifest["views"]["flip"]["files"]["pooled.npy"]["sha256"] = sha256(path)
    (tmp_path / "cache" / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(tagfill.TagfillError, match=changed("flip")):
        resume(tmp_path / "run")


def test_a_missing_view_is_refused(recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_in_epoch(2, recipe, tmp_path / "run", monkeypatch)
    shutil.rmtree(tmp_path / "cache" / "views" / "crop1")
    manifest = json.loads((tmp_path / "cache" / "manifest.json").read_text())
    del manifest["views"]["crop1"]
    (tmp_path / "cache" / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(tagfill.TagfillError, match=changed("crop1")):
        resume(tmp_path / "run")


def test_a_run_from_before_views_were_written_down_goes_on(
    recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in_epoch(2, recipe, tmp_path / "run", monkeypatch)
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    assert set(description.pop("views")) == {"eval", "flip", "crop0", "crop1"}
    (tmp_path / "run" / "run.json").write_text(json.dumps(description))

    assert resume(tmp_path / "run").finished
