"""The same run, however its processes are started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tagfill.training.run import train

from .conftest import Material
from .processes import PATIENCE, outcome, tagfill


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
    tagfill(*arguments(material, out), "--processes", "2")
    return outcome(out)


@pytest.mark.long
@pytest.mark.parametrize("launch", [under_slurm, under_torchrun])
def test_launcher_does_not_matter(
    material: Material, tmp_path: Path, launched_by_us: dict[str, bytes], launch: object
) -> None:
    launch(material, tmp_path / "run")  # type: ignore[operator]

    assert outcome(tmp_path / "run") == launched_by_us


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.long)])
def test_validation_is_the_same_on_any_number_of_processes(material: Material, tmp_path: Path, processes: int) -> None:
    """With a learning rate of next to nothing, the weights are those of the start whatever the order of images."""
    settings: dict[str, Any] = {"method": "en+scl", "epochs": 2, "batch_size": 12, "lr": 1e-30, **material.settings}
    train(material.single, out=tmp_path / "one", features=material.cache, **settings)
    alike = [*arguments(material, tmp_path / "many"), "--lr", "1e-30", "--processes", str(processes)]
    printed = tagfill(*alike, "--json", "--quiet")

    assert json.loads(printed)["run"] == str(tmp_path / "many")  # one document and nothing else
    one, many = (
        [json.loads(line)["val_mAP"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "many")
    )
    assert one == many
