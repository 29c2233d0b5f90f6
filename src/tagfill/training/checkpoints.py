"""Checkpoints: folders of safetensors and JSON that are either whole or not there.

    checkpoints/00000120/model.safetensors       weights and buffers
                         optimizer.safetensors   moments
                         rank0.safetensors       memory and method state of each process
                         state.json              position, best epoch, checksums of the files above

All files are written below a temporary name and synced; the last act is a rename. Opening takes the newest one whose
checksums hold.


Going on with another number of processes, between two epochs.

Each image's state moves to the process that sees the image from now on. Weights and optimiser are the same in all
processes and stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tagfill.data import Sampler
from tagfill.errors import RunError
from tagfill.io import atomic_write, sha256, sync_folder, write_json
from tagfill.memory import JournaledArray, SavedPart, Shard, sub_state
from tagfill.training.devices import Devices
from tagfill.training.run_folder import Run, memory_folder

KEPT = 2


@dataclass
class State:
    """Where a run stands, and everything about it that is not a tensor.

    Attributes:
        number: of the checkpoint; it grows with the steps taken.
        stage: position in the recipe's list.
        epoch: under way, from 1; one more than there are when the stage is done.
        step: steps of that epoch that are done.
        best: the best epoch so far in this stage: epoch and score.
        stale: epochs since then.
        done: whether the stage has ended early.
        metrics_bytes: length of `metrics.jsonl`.
        memory: name of the folder that holds the memory's files.
        disk: per rank, the checksum of each memory on disk.
        groups: hyper-parameters of the optimiser's groups.
        precision: what scales gradients in half precision.
        files: checksum of each file of the checkpoint.
    """

    number: int
    stage: int
    epoch: int
    step: int
    best: dict[str, float] | None = None
    stale: int = 0
    done: bool = False
    metrics_bytes: int = 0
    memory: str = "0"
    disk: list[dict[str, str]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    precision: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """A checkpoint that was read back."""

    path: Path
    state: State
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    @property
    def world(self) -> int:
        """How many processes saved it."""
        return len(self.state.disk)

    def of_rank(self, rank: int) -> dict[str, Tensor]:
        """The memory, the method's state and the sums of one process."""
        return load_file(self.path / f"rank{rank}.safetensors")


def save_checkpoint(
    folder: Path,
    devices: Devices,
    state: State,
    model: dict[str, Tensor],
    optimizer: dict[str, Tensor],
    rank: dict[str, Tensor],
) -> None:
    """Write a checkpoint, unless this position has one; every process calls this with its own `rank` tensors."""
    final, temporary = folder / f"{state.number:08d}", folder / f".{state.number:08d}.tmp"
    if devices.on_main(final.exists):
        return
    if devices.main:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    devices.barrier()
    _write(temporary / f"rank{devices.ranks.rank}.safetensors", rank)
    devices.barrier()
    if devices.main:
        _write(temporary / "model.safetensors", model)
        _write(temporary / "optimizer.safetensors", optimizer)
        state.files = {path.name: sha256(path) for path in sorted(temporary.glob("*.safetensors"))}
        content = asdict(state)
        write_json(temporary / "state.json", {**content, "checksum": _checksum(content)})
        temporary.rename(final)
        sync_folder(folder)
    devices.barrier()


def prune(folder: Path) -> dict[str, Any]:
    """Remove old checkpoints and anything half-written.

    The newest two are kept, and the newest one between two epochs, where the number of processes may change.

    Returns:
        The `number` of the oldest one kept, and the names of all `memories` that are still needed.
    """
    for leftover in folder.glob(".*.tmp"):
        shutil.rmtree(leftover)
    states = {number: state for number in _numbers(folder) if (state := _state_if_whole(folder / f"{number:08d}"))}
    between = [number for number, state in states.items() if state.step == 0][-1:]
    kept = sorted({*between, *list(states)[-KEPT:]})
    for number in _numbers(folder):
        if number not in kept:
            _remove(folder / f"{number:08d}")
    return {"number": kept[0], "memories": sorted({states[number].memory for number in kept})}


def open_newest(folder: Path, *, between_epochs: bool = False) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint that is whole, and a sentence about each damaged one that was passed over.

    Args:
        folder: of the checkpoints.
        between_epochs: take the newest one between two epochs.
    """
    warnings: list[str] = []
    for number in reversed(_numbers(folder)):
        path = folder / f"{number:08d}"
        try:
            checkpoint = _read(path)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            warnings.append(f"Checkpoint {path} is damaged ({error}); going back to the one before.")
            continue
        if checkpoint.state.step == 0 or not between_epochs:
            return checkpoint, warnings
    detail = f" {warnings[-1]}" if warnings else ""
    raise RunError(f"{folder} holds no checkpoint to resume from; start the run again.{detail}")


def discard_after(folder: Path, number: int) -> None:
    """Remove checkpoints that are newer than the one resumed from: damaged ones, or those within an epoch."""
    for newer in _numbers(folder):
        if newer > number:
            _remove(folder / f"{newer:08d}")


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal())


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    with atomic_write(path) as file:
        file.write(save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}))


def _remove(path: Path) -> None:
    """Remove a checkpoint; one that is half removed must not pass for one, so its name goes first."""
    doomed = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed)


def _state_if_whole(path: Path) -> State | None:
    """The state of a checkpoint; None of one that was damaged since, and is of no use."""
    try:
        return _state(path)
    except (OSError, ValueError, TypeError):
        return None


def _state(path: Path) -> State:
    content = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if content.pop("checksum", None) != _checksum(content):
        raise ValueError("state.json does not have its checksum")
    return State(**content)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> Checkpoint:
    state = _state(path)
    for name, checksum in state.files.items():
        if sha256(path / name) != checksum:
            raise ValueError(f"{name} does not have its checksum")
    return Checkpoint(path, state, *(load_file(path / f"{name}.safetensors") for name in ("model", "optimizer")))


def roll_back(run: Run, checkpoint: Checkpoint) -> None:
    """Bring the files of all processes that saved a checkpoint back to it; the main process does this once."""
    for rank, checksums in enumerate(checkpoint.state.disk):
        folder = memory_folder(run, checkpoint.state.memory, rank)
        for name, checksum in checksums.items():
            rows = len(sub_state(checkpoint.of_rank(rank), "shard")["index"])
            path = folder / f"{name}.u8"
            array = JournaledArray(path, (rows, path.stat().st_size // max(rows, 1)), create=False)
            array.roll_back(checkpoint.state.number, checksum)
            array.close()


def saved_parts(run: Run, sampler: Sampler, checkpoint: Checkpoint) -> list[SavedPart]:
    """What each of the processes kept that saved a checkpoint."""
    found = []
    for rank, checksums in enumerate(checkpoint.state.disk):
        shard = replace(sampler, rank=rank, world=checkpoint.world, batch_size=checkpoint.world).shard
        saved = checkpoint.of_rank(rank)
        assert np.array_equal(shard, sub_state(saved, "shard")["index"].numpy())
        folder = memory_folder(run, checkpoint.state.memory, rank)
        files = {name: folder / f"{name}.u8" for name in checksums}
        found.append(SavedPart(Shard(shard), sub_state(saved, "memory"), files))
    return found
