"""Complete labels are worth something, and single positives cost something, on the embedded dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

import tagfill


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> tuple[tagfill.Dataset, tagfill.Dataset, tagfill.FeatureCache]:
    folder = tmp_path_factory.mktemp("scenes")
    full = tagfill.scenes.make(folder / "full", train=240, val=60, test=200, size=160)
    single = tagfill.protocols.single_positive(full, seed=1200).save(folder / "single")
    return full, single, tagfill.features(full, image_size=128, views="eval", out=folder / "cache")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_full_labels_clearly_beat_assumed_negatives(
    scenes: tuple[tagfill.Dataset, tagfill.Dataset, tagfill.FeatureCache], tmp_path: Path, seed: int
) -> None:
    full, single, cache = scenes

    scores = {}
    for method, data in {"bce": full, "an": single}.items():
        run = tagfill.train(data, method=method, features=cache, epochs=10, seed=seed, out=tmp_path / method)
        scores[method] = tagfill.evaluate(run, data, split="test", features=cache.folder).mean

    assert scores["bce"] > scores["an"] + 0.05
