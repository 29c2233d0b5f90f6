"""Methods in real runs: what they change, what they remember, and what they gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import tagfill
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.training import Run, resume
from tagfill.training.checkpoints import open_newest

from .conftest import Material
from .processes import outcome, run_tagfill
from .stopping import stop_in_epoch


def trained(dataset: Path, material: Material, out: Path, method: str, epochs: int = 3, **settings: Any) -> Run:
    return tagfill.train(
        dataset, method=method, features=material.cache, epochs=epochs, out=out, **material.settings, **settings
    )


def kept(run: Run, rank: int = 0) -> dict[str, np.ndarray]:
    """State of the end of a run."""
    newest = max((run.folder / "checkpoints").glob("[0-9]*"))
    return load_file(newest / f"rank{rank}.safetensors")


def test_permanent_corrections_add_up_over_epochs(material: Material, tmp_path: Path) -> None:
    """101 images in batches of 16 make seven steps an epoch, the last one with five images."""
    run = trained(material.single, material, tmp_path / "run", "ll-cp", options={"ll-cp": {"rate": 2}})

    classes = len(tagfill.Dataset.open(material.single).classes)
    of_an_epoch = sum(-(-size * classes * 2 // 100) for size in [16] * 6 + [5])
    keys, values = kept(run)["memory.overlay.keys"], kept(run)["memory.overlay.values"]
    assert [line["decisions"] for line in run.metrics()] == [{}, {"flipped": of_an_epoch}, {"flipped": of_an_epoch}]
    assert len(np.unique(keys)) == 2 * of_an_epoch
    assert set(values.tolist()) == {1}
    observed = tagfill.Dataset.open(material.single).labels("train").dense()
    assert (observed[keys // classes, keys % classes] == -1).all()


def test_corrections_reach_the_next_stage(material: Material, tmp_path: Path) -> None:
    stages = [
        {"name": "one", "input": "cache", "epochs": 2},
        {"name": "two", "input": "cache", "epochs": 1, "start": {"head": "last", "memory": "last"}},
    ]
    options = {"ll-cp": {"rate": 2}}
    run = trained(material.single, material, tmp_path / "run", "ll-cp", stages=stages, options=options)

    assert len(kept(run)["memory.overlay.keys"]) == run.metrics()[1]["decisions"]["flipped"]


@pytest.mark.long
def test_two_processes_keep_the_changes_of_their_own_images(material: Material, tmp_path: Path) -> None:
    flags = ["--method", "ll-cp", "--features", str(material.cache), "--epochs", "2", "--processes", "2"]
    rate = ["--set", "options.ll-cp.rate=2"]
    run_tagfill("train", str(material.single), *material.flags, *flags, *rate, "--out", str(tmp_path / "run"))

    run = Run.open(tmp_path / "run")
    classes = len(tagfill.Dataset.open(material.single).classes)
    states = [kept(run, rank) for rank in (0, 1)]
    for state in states:
        assert np.isin(state["memory.overlay.keys"] // classes, state["shard.index"]).all()
    changes = sum(len(state["memory.overlay.keys"]) for state in states)
    assert run.metrics()[1]["decisions"] == {"flipped": changes}


def terms(run: Run) -> list[tuple[str, list[str]]]:
    return [(line["stage"], list(line["loss"])) for line in run.metrics()]


def test_csl_takes_the_prior_of_a_helper_stage(material: Material, partial: Path, tmp_path: Path) -> None:
    helper = {"name": "helper", "input": "cache", "epochs": 2, "method": "p-asl", "options": {}}
    main = {"name": "main", "input": "cache", "epochs": 2, "start": {"memory": "last"}}
    options = {"csl": {"likely": 0, "threshold": 0.3}}
    run = trained(partial, material, tmp_path / "run", "csl", stages=[helper, main], options=options)

    assert terms(run) == [("helper", ["p-asl"]), ("helper", ["p-asl"]), ("main", ["csl"]), ("main", ["csl"])]
    state = kept(run)
    labels = tagfill.Dataset.open(partial).labels("train")
    assert state["memory.prior.visits"] == 2 * 101
    prior = state["memory.prior.sums"] / state["memory.prior.visits"]
    informed = (labels.positives > 0) & (labels.negatives > 0)
    np.testing.assert_array_equal(state["method.prior"], np.where(informed, prior, 0))
    unknown = (labels.dense() == -1).sum(0)
    ignored = int(unknown[state["method.prior"] > 0.3].sum())
    assert 0 < ignored < unknown.sum()
    assert [line.get("decisions") for line in run.metrics()] == [None, None, {"ignored": ignored}, {"ignored": ignored}]


def test_csl_alone_is_its_own_helper_first(material: Material, partial: Path, tmp_path: Path) -> None:
    run = trained(partial, material, tmp_path / "run", "csl", epochs=3)

    assert terms(run) == [("main", ["p-asl"]), ("main", ["csl"]), ("main", ["csl"])]
    assert kept(run)["memory.prior.visits"] == 101


beyond_the_first = [pytest.param(name, marks=pytest.mark.long) for name in ("ll-ct", "ll-cp", "splc", "p-asl", "csl")]


@pytest.mark.parametrize("method", ["ll-r", *beyond_the_first])
def test_methods_work_on_images(material: Material, tmp_path: Path, method: str) -> None:
    run = tagfill.train(material.single, method=method, epochs=2, out=tmp_path / "run", **material.settings)

    assert len(run.metrics()) == 2


def train(material: Material, out: Path, method: str, data: Dataset | None = None, **settings: object) -> Run:
    dataset = data if data is not None else Dataset.open(material.single)
    return tagfill.train(
        dataset, out=out, method=method, features=material.cache, epochs=4, **material.settings, **settings
    )


def test_a_method_that_never_begins_says_so(material: Material, tmp_path: Path) -> None:
    never = train(material, tmp_path / "never", "splc", options={"splc": {"warmup": 4}})
    early = train(material, tmp_path / "early", "em-apl", lr=10.0)  # every epoch is worse than the one before
    begins = train(material, tmp_path / "begins", "splc")

    never_log, early_log, begins_log = ((run.folder / "log.txt").read_text() for run in (never, early, begins))
    assert "before epoch 5 'splc' is a simpler method, and stage 'main' ends with epoch 4" in never_log
    assert early.best["epoch"] < 3
    assert f"The best epoch, {early.best['epoch']}, comes before epoch 3, in which 'em-apl' begins" in early_log
    assert "simpler" not in begins_log


def pseudo_labels(run: Run) -> torch.Tensor:
    checkpoint, _ = open_newest(run.checkpoints)
    return checkpoint.of_rank(0)["memory.pseudo_labels.values"]


def test_soft_negatives_are_as_many_as_the_formula_says(material: Material, tmp_path: Path) -> None:
    """Four epochs, two of them warm-up: before the third and the fourth, ⌊0.9 U_i / 2⌋ labels of each class."""
    run = train(material, tmp_path / "run", "em-apl")

    labels = Dataset.open(material.single).labels("train")
    known = torch.from_numpy(labels.dense() != -1)
    given = pseudo_labels(run) >= 0
    each = (0.9 * torch.from_numpy(len(labels) - labels.known) / 2).floor().long()
    assert torch.equal(given.sum(0), 2 * each)
    assert not (given & known).any()


def test_curriculum_labels_what_it_is_sure_of(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run", "curriculum", options={"curriculum": {"present_above": 0.5}})

    assert set(pseudo_labels(run).unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert (pseudo_labels(run) == 1).any()


def test_the_oracle_learns_more_than_it_could_know(material: Material, tmp_path: Path) -> None:
    told, assumed = (train(material, tmp_path / name, name).metrics()[-1] for name in ("iun", "an"))

    assert told["loss"]["iun"] != assumed["loss"]["an"]


def test_the_oracle_needs_a_simulated_dataset(material: Material, tmp_path: Path) -> None:
    without = Dataset.open(material.single).replace(truth=None, folder=None)

    with pytest.raises(TagfillError, match="is an oracle and needs the complete labels"):
        train(material, tmp_path / "run", "iun", without)


@pytest.mark.parametrize("method", ["epr", "role"])
def test_the_expected_number_is_said_with_its_origin(material: Material, tmp_path: Path, method: str) -> None:
    run = train(material, tmp_path / "run", method)

    assert "counted on the validation split" in (run.folder / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", ["em-apl", "curriculum"])
def test_a_run_that_was_stopped_ends_with_the_same_bytes(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Stopped in the last epoch, whose labels were given before the checkpoint that the run continues from."""
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    train(material, unbroken, method)
    stop_in_epoch(4, Run.open(unbroken).recipe, broken, monkeypatch, every_steps=3)

    resume(broken)

    assert outcome(broken) == outcome(unbroken)


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
