"""Several processes: how they are launched, count together, stop together, and share gradients."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import tagfill
from pretended_device import DEVICE, PretendedDevice
from tagfill import methods
from tagfill.data import Sampler
from tagfill.dataset import Dataset
from tagfill.training import Run
from tagfill.training.devices import Devices
from tagfill.training.run import train

from .conftest import Material
from .extra_methods import SPOILT, SPOILT_IN, Rejecting
from .half_batches import LOSSES, step
from .processes import PATIENCE, outcome, run_tagfill


def arguments(material: Material, out: Path) -> list[str]:
    return [
        *("train", str(material.single), *material.flags, "--features", str(material.cache), "--method", "en+scl"),
        *("--epochs", "2", "--batch-size", "12", "--out", str(out)),
    ]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def under_torchrun(material: Material, out: Path) -> None:
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port(), "-m", "tagfill"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *command, *arguments(material, out)],
        check=True,
        capture_output=True,
        timeout=PATIENCE,
        env=environment,
    )


def under_slurm(material: Material, out: Path) -> None:
    """Two tasks with the variables that srun sets."""
    job = {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "tagfill",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "localhost",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "OMP_NUM_THREADS": "1",
    }
    tasks = [
        subprocess.Popen(
            [sys.executable, "-m", "tagfill", *arguments(material, out)],
            env={**os.environ, **job, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in (0, 1)
    ]
    for task in tasks:
        output, _ = task.communicate(timeout=PATIENCE)
        assert task.returncode == 0, output.decode()


@pytest.fixture(scope="module")
def launched_by_us(material: Material, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("launching") / "run"
    run_tagfill(*arguments(material, out), "--processes", "2")
    return outcome(out)


@pytest.mark.long
@pytest.mark.parametrize("launch", [under_slurm, under_torchrun])
def test_launcher_does_not_matter(
    material: Material, tmp_path: Path, launched_by_us: dict[str, bytes], launch: object
) -> None:
    launch(material, tmp_path / "run")  # type: ignore[operator]

    assert outcome(tmp_path / "run") == launched_by_us


@pytest.mark.long  # two processes also score the same as one in test_patches.py
@pytest.mark.parametrize("processes", [2, 3])
def test_validation_is_the_same_on_any_number_of_processes(material: Material, tmp_path: Path, processes: int) -> None:
    """With a learning rate of next to nothing, the weights are those of the start whatever the order of images."""
    settings: dict[str, Any] = {"method": "en+scl", "epochs": 2, "batch_size": 12, "lr": 1e-30, **material.settings}
    train(material.single, out=tmp_path / "one", features=material.cache, **settings)
    alike = [*arguments(material, tmp_path / "many"), "--lr", "1e-30", "--processes", str(processes)]
    printed = run_tagfill(*alike, "--json", "--quiet")

    assert json.loads(printed)["run"] == str(tmp_path / "many")  # one document and nothing else
    one, many = (
        [json.loads(line)["val_mAP"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "many")
    )
    assert one == many


SCRIPT = Path(__file__).with_name("extra_methods.py")


@pytest.fixture(scope="module")
def even(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 training images, all of which two processes visit in an epoch, 50 each."""
    data = Dataset.open(material.single)
    splits = data.split_of_images()
    splits[data.split("train")[-1]] = "left out"
    return data.with_splits(splits).replace(folder=None).save(tmp_path_factory.mktemp("even") / "data").folder


@pytest.fixture(scope="module")
def ended(
    material: Material, even: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, subprocess.CompletedProcess[str]]:
    """A run of two processes, in one of which the loss is not a number in the third epoch."""
    out = tmp_path_factory.mktemp("together") / "run"
    flags = ["--method", "rejecting", "--processes", "2", "--features", material.cache, *material.flags]
    command = [sys.executable, SCRIPT, "train", even, *flags, "--epochs", str(SPOILT_IN), "--out", out]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV"))}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
    return Run.open(out), done


def test_decisions_of_two_processes_are_those_of_one(
    material: Material,
    even: Path,
    ended: tuple[Run, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = Dataset.open(even).labels("train").dense()
    expected = {"flipped": int((labels[::3, 1] < 0).sum()), "rejected": int((labels[:, 0] < 0).sum())}
    assert min(expected.values()) > 20
    monkeypatch.setitem(methods.METHODS, "rejecting", Rejecting)
    alone = tagfill.train(
        even, method="rejecting", features=material.cache, epochs=2, out=tmp_path / "run", **material.settings
    )

    for run in (alone, ended[0]):
        assert [line["decisions"] for line in run.metrics()] == [expected, expected]


def test_a_loss_that_is_not_a_number_in_one_process_stops_both(
    even: Path, ended: tuple[Run, subprocess.CompletedProcess[str]]
) -> None:
    run, done = ended
    (path,) = run.folder.glob("not-finite-rank*.json")
    content = json.loads(path.read_text())
    batch = Sampler(100, 16, 0, int(path.stem[-1]), 2).batches(SPOILT_IN)[content["step"]]

    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    moment = f"epoch {SPOILT_IN}, step {content['step'] + 1}"
    assert f"Error: The loss term 'bad' is nan in {moment}; {path} lists the images of the batch." in done.stderr
    assert SPOILT in batch
    assert content["images"] == Dataset.open(even).names(Dataset.open(even).split("train")[batch])
    assert len(run.metrics()) == SPOILT_IN - 1


HALVES_SCRIPT = Path(__file__).with_name("half_batches.py")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    """Losses and gradients on one process and on two."""
    one = {f"{name}.{key}": tensor for name in LOSSES for key, tensor in step(Devices(), name).items()}
    out = tmp_path_factory.mktemp("means") / "gradients.safetensors"
    subprocess.run([sys.executable, HALVES_SCRIPT, "2", out], check=True, capture_output=True, timeout=240)
    return [one, load_file(out)]


@pytest.mark.parametrize("loss", LOSSES)
def test_mean_losses_do_not_depend_on_the_number_of_ranks(measured: list[dict[str, Tensor]], loss: str) -> None:
    one, two = ({name: value for name, value in part.items() if name.startswith(f"{loss}.")} for part in measured)

    assert len(one) > 20
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-6)


def test_a_run_on_a_device_ends_as_on_the_cpu(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors live on a pretended device that refuses to be mixed with the host; validation and checkpoints too."""
    settings: dict[str, Any] = {"method": "en+scl", "features": material.cache, "epochs": 2, **material.settings}
    tagfill.train(material.single, out=tmp_path / "cpu", **settings)
    monkeypatch.setattr(Devices, "device", DEVICE)
    with PretendedDevice():
        tagfill.train(material.single, out=tmp_path / "device", **settings)

    assert outcome(tmp_path / "device") == outcome(tmp_path / "cpu")
