"""What two processes that train together count together, and how they stop together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tagfill
from tagfill import methods
from tagfill.data import Sampler
from tagfill.dataset import Dataset
from tagfill.training import Run

from .conftest import Material
from .extra_methods import SPOILT, SPOILT_IN, Rejecting
from .processes import PATIENCE

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
