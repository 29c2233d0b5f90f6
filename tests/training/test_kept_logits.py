"""Kept logits are those that would be computed, and are computed again once anything has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import tagfill
from tagfill.training import evaluate, kept_logits
from tagfill.training.evaluation import LoadedModel

from .conftest import Material


@pytest.fixture(scope="module")
def trained(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "an"
    return tagfill.train(
        material.single, method="an", out=out, features=material.cache, epochs=1, **material.settings
    ).folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "an"))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that were really predicted."""
    seen: list[str] = []
    predict = LoadedModel.predict

    def counted(model, split, *args, **kwargs):
        seen.append(split)
        return predict(model, split, *args, **kwargs)

    monkeypatch.setattr(LoadedModel, "predict", counted)
    return seen


def load(run: Path, material: Material, *, features: bool = True, **options: object) -> LoadedModel:
    data = tagfill.Dataset.open(material.single)
    return LoadedModel.open(run, data, features=material.cache if features else None, **options)


def test_logits_of_an_evaluation_are_used_again_and_are_the_same(run, material, computed):
    evaluate(run, tagfill.Dataset.open(material.single), features=material.cache)
    batches = list(load(run, material).predict("test"))
    del computed[:]
    index, logits = load(run, material).logits("test")
    assert computed == []
    np.testing.assert_array_equal(index, np.concatenate([batch.index for batch, _ in batches]))
    np.testing.assert_array_equal(logits, np.concatenate([prediction.logits for _, prediction in batches]))
    some, part = load(run, material).logits("test", np.array([3, 7]))
    assert computed == []
    assert some.tolist() == [3, 7]
    np.testing.assert_array_equal(part, logits[[3, 7]])


def test_a_part_of_a_split_is_not_kept_and_a_whole_one_is(run, material, computed):
    load(run, material).logits("train", np.arange(5))
    load(run, material).logits("train")
    load(run, material).logits("train")
    assert computed == ["train", "train"]


@pytest.mark.parametrize("what", ["model", "images", "features", "boost", "damaged", "size"])
def test_logits_are_computed_again_after_a_change(what, run, material, computed, monkeypatch):
    if what == "size":
        monkeypatch.setattr(kept_logits, "MAX_SCORES", 10)
        monkeypatch.setattr("tagfill.training.evaluation.MAX_SCORES", 10)
    _, before = load(run, material).logits("test")
    model = load(run, material)
    if what == "model":
        changed = load(run, material).model
        next(changed.head.parameters()).data.add_(1.0)
        changed.save(run / "best")
        model = load(run, material)
    elif what == "images":
        data = tagfill.Dataset.open(material.single)
        splits = data.split_of_images()
        splits[data.split("test")[0]] = "val"
        moved = data.with_splits(splits).replace(folder=None)
        model = LoadedModel.open(run, moved, features=material.cache)
    elif what == "features":
        model = load(run, material, features=False)
    elif what == "boost":
        model = load(run, material, boost=2.0)
    elif what == "damaged":
        (run / "logits" / "test.npz").write_bytes(b"PK broken")
    del computed[:]
    index, after = model.logits("test")
    assert computed == ["test"]
    expected = np.concatenate([prediction.logits for _, prediction in model.predict("test")])
    np.testing.assert_array_equal(after, expected)
    assert len(index) == len(before) - (what == "images")


def test_image_files_that_changed_are_read_again(run, material, computed, tmp_path):
    data = tagfill.Dataset.open(material.single)
    root = Path(shutil.copytree(data.root, tmp_path / "photos"))
    moved = data.replace(root=root, folder=None)
    for expected in (["test"], []):
        del computed[:]
        LoadedModel.open(run, moved).logits("test")
        assert computed == expected
    first, second = (root / name for name in data.names(data.split("test")[:2]))
    shutil.copy(second, first)
    LoadedModel.open(run, moved).logits("test")
    assert computed == ["test"]
