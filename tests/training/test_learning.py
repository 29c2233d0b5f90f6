"""Complete labels are worth something, single positives cost something, and methods win some of it back."""

from __future__ import annotations

from pathlib import Path

import pytest

import tagfill

SEEDS = (0, 1, 2)
BETTER = ("em", "ll-r", "en", "en+scl", "epr", "wan")  # than reading unknown as absent, in the mean over seeds


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


def score(data: tagfill.Dataset, cache: tagfill.FeatureCache, out: Path, method: str, seed: int, **settings) -> float:
    run = tagfill.train(data, method=method, features=cache, seed=seed, out=out, **settings)
    return tagfill.evaluate(run, data, split="test", features=cache.folder).mean


@pytest.fixture(scope="module")
def floor(
    scenes: tuple[tagfill.Dataset, tagfill.Dataset, tagfill.FeatureCache], tmp_path_factory: pytest.TempPathFactory
) -> list[float]:
    _, single, cache = scenes
    out = tmp_path_factory.mktemp("an")
    return [score(single, cache, out / str(seed), "an", seed, epochs=10) for seed in SEEDS]


@pytest.mark.parametrize("method", ["em", *(pytest.param(name, marks=pytest.mark.long) for name in BETTER[1:])])
def test_method_beats_assumed_negatives(
    scenes: tuple[tagfill.Dataset, tagfill.Dataset, tagfill.FeatureCache],
    floor: list[float],
    tmp_path: Path,
    method: str,
) -> None:
    _, single, cache = scenes

    scores = [score(single, cache, tmp_path / str(seed), method, seed, epochs=10) for seed in SEEDS]

    assert sum(scores) > sum(floor)


@pytest.mark.long
def test_boost_beats_assumed_negatives(
    scenes: tuple[tagfill.Dataset, tagfill.Dataset, tagfill.FeatureCache], tmp_path: Path
) -> None:
    """A boost acts on cells, and the sixteen of the small views are too few for it."""
    full, single, _ = scenes
    cache = tagfill.features(full, image_size=224, views="eval", out=tmp_path / "cache")

    plain, boosted = (
        [score(single, cache, tmp_path / f"{name}{seed}", name, seed, epochs=25, head_options=head) for seed in (0, 1)]
        for name, head in (("an", {}), ("ll-r", {"boost": 5.0}))
    )

    assert sum(boosted) > sum(plain)
