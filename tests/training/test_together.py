"""Runs that train together end as they do alone, also after a kill, and one that fails leaves the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tagfill
from tagfill import Dataset, methods
from tagfill.methods.base import LossMethod
from tagfill.training import Recipe, Run, build_recipe, start
from tagfill.training.stacked import stack_loss
from tagfill.training.together import group_key, train_together

from .conftest import Material
from .processes import PATIENCE
from .stopping import stop_in_epoch

EPOCHS = 2
WEIGHTS = "model.safetensors"
LOSSES = [name for name, make in methods.METHODS.items() if type(make()) is LossMethod]
COMPLETE = ("bce", "bce-ls")  # methods that need complete labels


def recipe(material: Material, method: str = "an", *, dataset: Path | None = None, **more: Any) -> Recipe:
    stage = {"name": "main", "input": "cache", "epochs": EPOCHS, "optimizer": {"lr": 1e-2, **more.pop("optimizer", {})}}
    stage |= more.pop("stage", {})
    content = {"method": method, "head": "cam", "batch_size": 16, "stages": [stage], **material.settings, **more}
    place = dataset or (material.full if method in COMPLETE else material.single)
    return build_recipe({**content, "dataset": str(place)}, features=material.cache)


def key(material: Material, method: str = "an", *, device: str = "cpu", **more: Any) -> Any:
    made = recipe(material, method, **more)
    return group_key(made, Dataset.open(made.dataset), device)


def metrics(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def contents(run: Run) -> dict[str, Any]:
    """The model of the best epoch, the metrics, and the last checkpoint."""
    last = sorted((run.folder / "checkpoints").glob("[0-9]*"))[-1]
    files = [
        run.model_folder / WEIGHTS,
        run.folder / "metrics.jsonl",
        *sorted(last.glob("*.safetensors")),
    ]
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in files}


def test_every_loss_and_seed_and_learning_rate_ends_as_it_does_alone(material: Material, tmp_path: Path) -> None:
    """Different labels, orders, rates and losses in one group, with weight decay and a schedule."""
    optimizer, stage = {"name": "adamw", "weight_decay": 0.1}, {"schedule": {"name": "cosine"}}
    shared: dict[str, Any] = {"optimizer": optimizer, "stage": stage}
    made = [recipe(material, name, expected_positives=2.0, **shared) for name in LOSSES]
    made += [recipe(material, seed=seed, **shared) for seed in (1, 2)]
    made += [recipe(material, optimizer={**optimizer, "lr": lr}, stage=stage) for lr in (0.1, 1e-3)]
    keys = {group_key(each, Dataset.open(each.dataset)) for each in made}
    assert len(keys) == 1
    assert None not in keys

    together = train_together([(each, tmp_path / f"together-{number}") for number, each in enumerate(made)])

    for number, (each, run) in enumerate(zip(made, together, strict=True)):
        data = Dataset.open(each.dataset)
        assert isinstance(run, Run), run
        alone = start(data, each, out=tmp_path / f"alone-{number}")
        assert run.best["epoch"] == alone.best["epoch"]
        for mine, own in zip(metrics(run), metrics(alone), strict=True):
            assert mine["val_mAP"] == pytest.approx(own["val_mAP"], abs=1e-5)
            assert mine["loss"] == pytest.approx(own["loss"], rel=1e-4)
            assert (mine["epoch"], mine["lr"], mine["best"]) == (own["epoch"], own["lr"], own["best"])
        if each.seed:
            means = [tagfill.evaluate(r, data, features=material.cache).mean for r in (run, alone)]
            assert means[0] == pytest.approx(means[1], abs=1e-7)  # 1e-5 of percent
        mine, own = (load_file(r.model_folder / WEIGHTS) for r in (run, alone))
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5)


SCRIPT = """
import sys
from pathlib import Path
from tagfill.training import Recipe, Saving
from tagfill.training.together import train_together

runs = [(Recipe.model_validate_json(Path(path).read_text()), Path(path).with_suffix("")) for path in sys.argv[1:]]
print(train_together(runs, saving=Saving(every_steps=1)))
"""


def test_killed_runs_go_on_between_epochs_and_end_with_the_same_bytes(material: Material, tmp_path: Path) -> None:
    made = [recipe(material, seed=seed, stage={"epochs": 20}) for seed in (0, 1)] + [
        recipe(material, "wan", stage={"epochs": 20})
    ]
    whole = train_together([(each, tmp_path / f"whole-{number}") for number, each in enumerate(made)])
    folders = [tmp_path / f"killed-{number}" for number in range(len(made))]
    for each, folder in zip(made, folders, strict=True):
        folder.with_suffix(".json").write_text(each.model_dump_json())
    command = [sys.executable, "-c", SCRIPT, *(str(folder.with_suffix(".json")) for folder in folders)]
    process = subprocess.Popen(command, start_new_session=True)
    begin = time.monotonic()
    while not (folders[2] / "metrics.jsonl").exists() or len(metrics(Run(folders[2]))) < 3:
        assert time.monotonic() - begin < PATIENCE
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not any(Run(folder).finished for folder in folders)

    resumed = train_together(list(zip(made, folders, strict=True)))

    for before, after in zip(whole, resumed, strict=True):
        assert isinstance(before, Run)
        assert isinstance(after, Run)
        assert contents(after) == contents(before)
        epochs = [json.loads(line)["epoch"] for line in (after.folder / "timings.jsonl").read_text().splitlines()]
        assert epochs.count(1) == 1  # the first one was not trained again


def test_a_run_that_was_stopped_alone_within_an_epoch_joins_the_others(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = recipe(material), recipe(material, seed=1)
    stop_in_epoch(2, first, tmp_path / "stopped", monkeypatch)
    assert Run(tmp_path / "stopped").begun

    runs = train_together([(first, tmp_path / "stopped"), (second, tmp_path / "new")])

    alone = start(Dataset.open(first.dataset), first, out=tmp_path / "alone")
    assert isinstance(runs[0], Run)
    assert isinstance(runs[1], Run)
    assert [line["val_mAP"] for line in metrics(runs[0])] == pytest.approx(
        [line["val_mAP"] for line in metrics(alone)], abs=1e-5
    )


def test_a_run_whose_loss_is_not_finite_ends_alone(material: Material, tmp_path: Path) -> None:
    good, bad = recipe(material), recipe(material, optimizer={"lr": 1e38})

    runs = train_together([(good, tmp_path / "good"), (bad, tmp_path / "bad")])

    assert isinstance(runs[0], Run)
    assert runs[0].finished
    assert "is nan in epoch 1" in str(runs[1])
    assert json.loads((tmp_path / "bad" / "not-finite-rank0.json").read_text())["images"]


def test_a_method_that_refuses_the_data_is_the_error_of_its_run(material: Material, tmp_path: Path) -> None:
    good, refused = recipe(material), recipe(material, "bce", dataset=material.single)

    runs = train_together([(good, tmp_path / "good"), (refused, tmp_path / "refused")])

    assert isinstance(runs[0], Run)
    assert "complete" in str(runs[1])


def test_finished_runs_are_left_as_they_are(material: Material, tmp_path: Path) -> None:
    made = [(recipe(material, seed=seed), tmp_path / str(seed)) for seed in (0, 1)]
    train_together(made)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    train_together(made)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("role", {}),  # has memory
        ("ll-r", {}),  # has a schedule
        ("an+cl", {}),  # is a sum
        ("an", {"head_options": {"boost": 5}}),  # reads class maps
        ("an", {"head": "mlp"}),
        ("an", {"optimizer": {"name": "sgd"}}),
        ("an", {"stage": {"average": 0.9}}),
        ("an", {"stage": {"accumulate": 2}}),
        ("an", {"precision": "bfloat16"}),
        ("an", {"compile": True}),
    ],
)
def test_runs_that_need_more_than_a_loss_of_pooled_features_train_alone(
    material: Material, method: str, more: dict[str, Any]
) -> None:
    assert key(material, method, **more) is None


@pytest.mark.parametrize("more", [{"batch_size": 8}, {"stage": {"epochs": 5}}, {"optimizer": {"weight_decay": 0.1}}])
def test_runs_with_other_steps_train_in_another_group(material: Material, more: dict[str, Any]) -> None:
    assert key(material, **more) not in (None, key(material))


def test_a_loss_that_cannot_be_vectorized_is_called_for_each_run() -> None:
    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return logits.sum() if bool((labels > 0).any()) else logits.sum() * 0

    logits = torch.arange(6.0).reshape(3, 1, 2)
    labels = torch.tensor([[[1, 0]], [[0, 0]], [[1, 1]]])
    assert stack_loss(loss, 3, 2)(logits, labels).tolist() == [1.0, 0.0, 9.0]
    assert np.isfinite(stack_loss(torch.nn.functional.mse_loss, 3, 2)(logits, labels.float()).numpy()).all()
