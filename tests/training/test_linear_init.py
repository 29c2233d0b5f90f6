"""LinearInit: a linear stage on frozen features, then everything, from its best head and table of estimates."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tagfill
from tagfill.training import Run
from tagfill.training.checkpoints import open_newest

from .conftest import Material


def linear_init(material: Material, out: Path, first: dict[str, str] | None = None) -> Run:
    """Two linear epochs at a rate that makes estimates certain, and one of everything at a rate of almost zero."""
    linear = {"name": "linear", "input": "cache", "epochs": 2, "optimizer": {"lr": 1.0}, **(first or {})}
    everything = {
        "name": "everything",
        "input": "images",
        "train": "all",
        "epochs": 1,
        "crop_scale": None,
        "optimizer": {"lr": 1e-12},
        "start": {"head": "best", "memory": "best"},
    }
    return tagfill.train(
        material.single,
        out=out,
        method="role",
        features=material.cache,
        batch_size=16,
        stages=[linear, everything],
        **material.settings,
    )


@pytest.fixture(scope="module")
def run(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return linear_init(material, tmp_path_factory.mktemp("linear-init") / "run")


def final(run: Run) -> dict[str, torch.Tensor]:
    checkpoint, _ = open_newest(run.checkpoints)
    return checkpoint.of_rank(0)


def test_the_estimates_of_the_best_linear_epoch_are_carried_over(run: Run) -> None:
    kept = load_file(run.folder / "memory" / "best" / "rank0" / "memory.safetensors")["estimates.values"]
    bound = math.log((1 - 1e-5) / 1e-5)

    assert kept.abs().max() > bound
    torch.testing.assert_close(final(run)["memory.estimates.values"], kept.clamp(-bound, bound), rtol=0, atol=1e-4)


def test_the_optimiser_of_the_table_begins_anew(run: Run) -> None:
    steps = math.ceil(101 / 16)

    assert int(final(run)["memory.estimates.adam.step"]) == steps


def test_both_stages_were_trained(run: Run) -> None:
    assert [line["stage"] for line in run.metrics()] == ["linear", "linear", "everything"]


def test_a_linear_stage_without_a_table_leaves_a_new_one(material: Material, tmp_path: Path) -> None:
    run = linear_init(material, tmp_path / "run", first={"method": "an-ls"})

    values = final(run)["memory.estimates.values"].sigmoid()
    assert values.min() == pytest.approx(0.4, abs=0.01)
