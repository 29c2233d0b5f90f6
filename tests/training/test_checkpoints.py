"""A run continues with another number of processes, between two epochs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tagfill.dataset import Dataset
from tagfill.errors import RunError
from tagfill.training import Run, resume

from .conftest import Material
from .processes import between_epochs, kill_when, start


@pytest.mark.long
def test_two_processes_become_one(material: Material, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(
        *("train", str(material.single), *material.flags, "--features", str(material.cache), "--method", "en+scl"),
        *("--set", "memory.storage=disk", "--epochs", "4", "--batch-size", "8", "--processes", "2"),
        *("--save-steps", "3", "--out", str(run)),
    )
    assert kill_when(process, between_epochs(run), random.Random(0))

    with pytest.raises(RunError, match="saved by 2 processes and there are 1 now; give --reshard"):
        resume(run)
    resume(run, reshard=True)

    assert [line["epoch"] for line in Run.open(run).metrics()] == [1, 2, 3, 4]
    newest = max((run / "checkpoints").glob("[0-9]*"))
    saved = load_file(newest / "rank0.safetensors")
    assert len(saved["memory.scores.values"]) == len(Dataset.open(material.single).split("train"))
    assert [path.parent.name for path in (run / "memory").glob("0-1-from-*/rank*")] != []
