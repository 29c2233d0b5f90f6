"""What large loss changes and what CSL knows about classes lasts as long as it should, in real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tagfill
from tagfill.training import Run

from .conftest import Material
from .processes import tagfill as command


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
    command("train", str(material.single), *material.flags, *flags, *rate, "--out", str(tmp_path / "run"))

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
