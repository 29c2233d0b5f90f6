"""The training loop: micro-batches, averages, early stopping, mixed batches, sums of an epoch, failures."""

from __future__ import annotations

import itertools
import json
import os
import resource
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tagfill
from tagfill import methods
from tagfill.cli import main
from tagfill.contract import Batch, Prediction
from tagfill.data import sources
from tagfill.dataset import Dataset
from tagfill.methods import METHODS, BaseMethod
from tagfill.models import Classifier
from tagfill.models.model_folder import read_description
from tagfill.training import Run, Saving, make_recipe, trainer
from tagfill.training.trainer import Trainer

from .conftest import Material
from .extra_methods import Rejecting
from .processes import outcome, run_here


def train(material: Material, out: Path, stage: dict[str, Any], dataset: Path | None = None, **settings: Any) -> Run:
    stages = settings.pop("stages", [{"input": "cache", "epochs": 2, **stage}])
    return tagfill.train(
        dataset or material.single,
        out=out,
        features=material.cache,
        stages=stages,
        **{"method": "an", "batch_size": 16, **material.settings, **settings},
    )


def weights(run: Run) -> dict[str, torch.Tensor]:
    return Classifier.load(run.model_folder).head.state_dict()


def test_micro_batches_add_up_to_the_batch(material: Material, tmp_path: Path) -> None:
    whole = train(material, tmp_path / "whole", {"optimizer": {"name": "sgd", "lr": 0.1}})
    parts = train(material, tmp_path / "parts", {"optimizer": {"name": "sgd", "lr": 0.1}, "accumulate": 3})

    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(parts)[name], value, rtol=1e-5, atol=1e-6)


def test_large_losses_are_ranked_within_a_micro_batch(material: Material, tmp_path: Path) -> None:
    """Two percent of the entries of each micro-batch, rounded up, are more than two percent of the whole batch."""
    run = train(material, tmp_path / "run", {"accumulate": 4}, method="ll-r", options={"ll-r": {"rate": 2}})

    classes, batches = len(Dataset.open(material.single).classes), [16] * 6 + [5]
    parts = [len(part) for size in batches for part in np.array_split(np.arange(size), 4)]
    within, whole = (sum(-(-size * classes * 2 // 100) for size in sizes) for sizes in (parts, batches))
    assert [line["decisions"] for line in run.metrics()] == [{}, {"rejected": within}]
    assert within > whole


def test_clipping_bounds_the_step(material: Material, tmp_path: Path) -> None:
    settings = {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.0}, "epochs": 1, "clip_norm": 1e-4}
    run = train(material, tmp_path / "run", settings, batch_size=101)

    start_weights = tagfill.models.create_head("cam", 256, 20, seed=0).state_dict()
    step = torch.cat([(weights(run)[name] - start_weights[name]).flatten() for name in start_weights])
    assert step.norm().item() == pytest.approx(1e-4, rel=1e-2)


def test_average_is_what_gets_saved(material: Material, tmp_path: Path) -> None:
    plain = train(material, tmp_path / "plain", {}, select="last")
    averaged = train(material, tmp_path / "averaged", {"average": 0.99}, select="last")

    newest = max(averaged.checkpoints.iterdir()) / "model.safetensors"
    assert torch.equal(load_file(newest)["average.head.fc.weight"], weights(averaged)["fc.weight"])
    assert torch.equal(load_file(newest)["module.head.fc.weight"], weights(plain)["fc.weight"])


def test_patience_ends_a_stage(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run", {"epochs": 60, "stopping": {"patience": 2}, "optimizer": {"lr": 0.1}})

    scores = [line["val_mAP"] for line in run.metrics()]
    assert len(scores) < 60
    assert max(scores[-2:]) <= max(scores[:-2])


def test_drop_ends_a_stage(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run", {"epochs": 60, "stopping": {"drop": 0.5}, "optimizer": {"lr": 0.1}})

    scores = [line["val_mAP"] for line in run.metrics()]
    assert max(scores) - scores[-1] > 0.5
    assert all(max(scores[: n + 1]) - score <= 0.5 for n, score in enumerate(scores[:-1]))


def test_selecting_the_last_epoch(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run", {"epochs": 3}, select="last")

    assert run.best["epoch"] == 3


def test_learning_rate_of_each_epoch_is_written_down(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run", {"epochs": 3, "schedule": {"name": "step", "milestones": [1, 2]}})

    assert [line["lr"] for line in run.metrics()] == pytest.approx([1e-3, 1e-4, 1e-5])


def test_observed_validation_labels_give_another_score(material: Material, tmp_path: Path) -> None:
    clean = train(material, tmp_path / "clean", {})
    observed = train(material, tmp_path / "observed", {}, val_labels="observed")

    assert [a["loss"] for a in clean.metrics()] == [b["loss"] for b in observed.metrics()]
    assert clean.metrics()[0]["val_mAP"] != observed.metrics()[0]["val_mAP"]
    assert [read_description(run.model_folder).calibration is None for run in (clean, observed)] == [False, True]


def test_observed_validation_labels_need_a_simulated_dataset(material: Material, tmp_path: Path) -> None:
    with pytest.raises(tagfill.TagfillError, match="needs a simulated dataset"):
        train(material, tmp_path / "run", {}, dataset=material.full, val_labels="observed", method="bce")


def test_batches_hold_their_share_of_labeled_images(material: Material, tmp_path: Path) -> None:
    data = Dataset.open(material.single)
    train_images = set(data.names(data.split("train")))
    rows = data.rows()
    labelled = data.names(data.split("train"))[:20]
    keep = [n for n, name in enumerate(rows["image"].to_pylist()) if name not in train_images or name in labelled]
    data.replace(annotations=rows.take(keep)).save(tmp_path / "few")

    run = train(material, tmp_path / "run", {"labeled_share": 0.25, "epochs": 1}, dataset=tmp_path / "few")

    assert run.finished


def test_labeled_share_without_unlabeled_images_is_refused(material: Material, tmp_path: Path) -> None:
    with pytest.raises(tagfill.TagfillError, match="no unlabeled images"):
        train(material, tmp_path / "run", {"labelled_share": 0.5})


def test_next_stage_can_start_from_the_best_memory(material: Material, tmp_path: Path) -> None:
    second = {"name": "second", "input": "cache", "epochs": 1, "start": {"head": "best", "memory": "best"}}
    stages = [{"name": "first", "input": "cache", "epochs": 3}, second]

    runs = [
        train(material, tmp_path / storage, {}, stages=stages, method="en+scl", memory={"storage": storage})
        for storage in ("ram", "disk")
    ]

    assert runs[0].metrics() == runs[1].metrics()
    last = [{**second, "start": {"head": "best", "memory": "last"}}]
    other = train(material, tmp_path / "last", {}, stages=[stages[0], *last], method="en+scl")
    best_is_last = [line["best"] for line in other.metrics()][2]
    assert (other.metrics()[3]["loss"] == runs[0].metrics()[3]["loss"]) == best_is_last


def test_stage_can_have_a_method_of_its_own(material: Material, tmp_path: Path) -> None:
    stages = [
        {"name": "first", "input": "cache", "epochs": 1, "method": "an"},
        {"name": "second", "input": "cache", "epochs": 1, "start": {"head": "last"}},
    ]

    run = train(material, tmp_path / "run", {}, stages=stages, method="role")

    assert [sorted(line["loss"]) for line in run.metrics()] == [["an"], ["estimates", "role"]]


def test_bad_images_are_left_out_and_listed(material: Material, tmp_path: Path) -> None:
    data = Dataset.open(material.single)
    shutil.copytree(data.root, tmp_path / "images")
    broken = data.names(data.split("train"))[3]
    (tmp_path / "images" / broken).write_bytes(b"not an image")
    data.replace(root=tmp_path / "images").save(tmp_path / "data")

    run = train(material, tmp_path / "run", {"input": "images"}, dataset=tmp_path / "data")

    lines = (run.folder / "bad-images.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == [broken]
    assert sum(broken in line for line in (run.folder / "log.txt").read_text().splitlines()) == 1


def test_too_many_bad_images_stop_the_run(material: Material, tmp_path: Path) -> None:
    data = Dataset.open(material.single)
    shutil.copytree(data.root, tmp_path / "images")
    for name in data.names(data.split("train"))[:3]:
        (tmp_path / "images" / name).unlink()
    data.replace(root=tmp_path / "images").save(tmp_path / "data")

    with pytest.raises(tagfill.TagfillError, match="2 images cannot be decoded, more than the 1"):
        train(material, tmp_path / "run", {"input": "images"}, dataset=tmp_path / "data", max_bad_images=0.01)


class Breaking(BaseMethod):
    """A loss that is not a number in one step, and an error two steps later because of it."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, torch.Tensor]:
        self.steps.append(batch.index.tolist())
        assert len(self.steps) < 13, "the weights are not numbers"
        return {"fine": prediction.logits.mean(), "bad": prediction.logits.sum() * (np.nan if self.broken else 0.0)}

    @property
    def broken(self) -> bool:
        return len(self.steps) == 11


@pytest.mark.parametrize("every_steps", [6, None])
def test_a_loss_that_is_not_finite_is_found_late_and_never_saved(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_steps: int | None
) -> None:
    """Losses are read every few steps: before a save, or when the method itself fails because of it."""
    method, data = Breaking(), Dataset.open(material.single)
    monkeypatch.setitem(METHODS, "breaking", lambda: method)
    monkeypatch.setattr(trainer, "_SHOW_EVERY", np.inf)
    content = {"dataset": str(material.single), "features": str(material.cache), "method": "breaking"}
    stages = [{"input": "cache", "epochs": 3}]
    recipe = make_recipe({**content, **material.settings, "batch_size": 16, "stages": stages})
    saving = Saving(every_steps=every_steps)

    with pytest.raises(tagfill.TagfillError, match="The loss term 'bad' is nan in epoch 2, step 4"):
        tagfill.training.start(data, recipe, out=tmp_path / "run", saving=saving)

    content = json.loads((tmp_path / "run" / "not-finite-rank0.json").read_text())
    assert content["images"] == data.names(data.split("train")[method.steps[10]])
    assert (content["epoch"], content["step"]) == (2, 3)
    saved = [load_file(folder / "model.safetensors") for folder in (tmp_path / "run" / "checkpoints").iterdir()]
    assert all(value.isfinite().all() for state in saved for value in state.values())


class Steep(BaseMethod):
    """A loss of 0 whose gradient is not a number."""

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, torch.Tensor]:
        return {"steep": (0 * prediction.logits).abs().sqrt().sum()}


@pytest.mark.parametrize("accumulate", [1, 3])
def test_images_of_a_batch_whose_gradients_cannot_be_clipped_are_kept(
    material: Material,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    accumulate: int,
) -> None:
    monkeypatch.setitem(METHODS, "steep", Steep)
    flags = [*material.flags, "--features", str(material.cache), "--method", "steep", "--set", "clip_norm=1"]
    command = ["tagfill", "train", str(material.single), *flags, "--set", f"accumulate={accumulate}"]
    monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path / "run")])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    path = tmp_path / "run" / "not-finite-rank0.json"
    assert f"The gradients are not finite in epoch 1, step 1; {path} lists the images" in capsys.readouterr().err
    content = json.loads(path.read_text())
    assert (content["epoch"], content["step"], content["terms"]) == (1, 0, {"steep": 0.0})
    assert len(set(content["images"])) == 16


@pytest.mark.long
def test_full_disk_destroys_nothing(material: Material, tmp_path: Path) -> None:
    script = (
        "import resource, sys, tagfill\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))\n"
        "tagfill.train(sys.argv[1], out=sys.argv[2], features=sys.argv[3], method='role', epochs=50, batch_size=16,\n"
        "              backbone='test_efficientnet', pretrained=sys.argv[5], image_size=128)\n"
    )
    arguments = [str(material.single), str(tmp_path / "run"), str(material.cache), "20000", str(material.weights)]

    ended = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)

    assert "There is no room to save a checkpoint" in ended.stderr
    assert "Free some space and start the run again." in ended.stderr
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []


def test_disk_that_fills_up_later_destroys_nothing(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier checkpoints stay, the exit code is 2, and with free space the run continues from there."""
    unbroken = train(material, tmp_path / "unbroken", {"epochs": 3}, method="role")
    run = tmp_path / "run"
    flags = [*material.flags, "--method", "role", "--features", str(material.cache), "--epochs", "3"]
    plain, limits = Trainer._save, resource.getrlimit(resource.RLIMIT_FSIZE)

    def save(self: Trainer, epoch: int, step: int) -> None:
        if (epoch, step) == (2, 4):
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        plain(self, epoch, step)

    command = ["train", str(material.single), *flags, "--batch-size", "16", "--save-steps", "2", "--out", str(run)]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save", save)
        try:
            run_here(*command, code=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    said = capsys.readouterr().err
    assert "There is no room to save a checkpoint" in said
    assert f"continue with 'tagfill train --resume {run}'" in said
    assert "Traceback" not in said
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["00000000", "00000006", "00000009"]
    assert Classifier.load(run / "best").classes == Dataset.open(material.single).classes
    assert outcome(tagfill.resume(run).folder) == outcome(unbroken.folder)


def test_killed_worker_is_reported_in_one_sentence(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, tests = sources.load_view, os.getpid()

    def load_view(*arguments: Any, **address: Any) -> Any:
        if address["index"] == 50 and os.getpid() != tests:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **address)

    monkeypatch.setattr(sources, "load_view", load_view)
    recipe = make_recipe({"dataset": str(material.single), "method": "an", **material.settings})
    with pytest.raises(tagfill.TagfillError, match="A worker process that decodes images was killed"):
        tagfill.training.start(Dataset.open(material.single), recipe, out=tmp_path / "run", workers=1)


def test_mixed_precision_keeps_losses_in_float32(material: Material, tmp_path: Path) -> None:
    plain = train(material, tmp_path / "plain", {"input": "images", "epochs": 1})
    mixed = train(material, tmp_path / "mixed", {"input": "images", "epochs": 1}, precision="bfloat16")

    first, second = plain.metrics()[0]["loss"]["an"], mixed.metrics()[0]["loss"]["an"]
    assert first != second
    assert first == pytest.approx(second, rel=0.05)


def test_interruption_at_the_very_end_loses_nothing(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = train(material, tmp_path / "unbroken", {}, method="en+scl", memory={"storage": "disk"})
    plain = Trainer._end_epoch

    def interrupted(self: Trainer, epoch: int, seconds: float, images: int) -> None:
        plain(self, epoch, seconds, images)
        self._interrupt.pressed = epoch == 2

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_end_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(material, tmp_path / "run", {}, method="en+scl", memory={"storage": "disk"})

    assert outcome(tagfill.resume(tmp_path / "run").folder) == outcome(unbroken.folder)


def test_interrupting_once_saves_and_stops(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A signal in the middle of the second epoch, as Ctrl-C sends it."""
    command = ["train", str(material.single), *material.flags, "--method", "role", "--features", str(material.cache)]
    unbroken = train(material, tmp_path / "unbroken", {"epochs": 3}, method="role")
    run, plain, steps = tmp_path / "run", Trainer._step, itertools.count()

    def step(self: Trainer, *arguments: Any) -> Any:
        if next(steps) == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        run_here(*command, "--epochs", "3", "--batch-size", "16", "--out", str(run), code=130)

    assert "stopped and saved" in capsys.readouterr().err
    assert len(Run.open(run).metrics()) == 1
    assert outcome(tagfill.resume(run).folder) == outcome(unbroken.folder)


def test_decisions_of_an_epoch_are_counted(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.METHODS, "rejecting", Rejecting)
    labels = tagfill.Dataset.open(material.single).labels("train").dense()

    run = tagfill.train(
        material.single,
        method="rejecting",
        features=material.cache,
        out=tmp_path / "run",
        stages=[{"input": "cache", "epochs": 2, "accumulate": 2}],
        **material.settings,
    )

    expected = {"flipped": int((labels[::3, 1] < 0).sum()), "rejected": int((labels[:, 0] < 0).sum())}
    assert [line["decisions"] for line in run.metrics()] == [expected, expected]
    assert "decisions" not in outcome(plain(material, tmp_path / "plain").folder)["metrics"].decode()


def plain(material: Material, out: Path) -> tagfill.Run:
    return tagfill.train(material.single, method="an", features=material.cache, out=out, epochs=1, **material.settings)


def test_a_step_runs_through_few_files(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "step_files" / "run.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--check"])
    monkeypatch.setattr(sys, "path", [*sys.path])

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")

    assert not ended.value.code, capsys.readouterr().out
