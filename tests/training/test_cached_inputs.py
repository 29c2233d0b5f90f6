"""Runs on a feature cache: images that its making left out, and pairs of weak and strong views."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tagfill
from tagfill.dataset import Dataset
from training.conftest import Material


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
        tagfill.train(data, features=cache, epochs=1, out=tmp_path / "run", max_bad_images=0.01, **material.settings)
