"""Checkpoints: folders of safetensors and JSON that are either complete or absent.

    checkpoints/00000120/model.safetensors       weights and buffers
                         optimizer.safetensors   moments
                         rank0.safetensors       memory and method state of each process
                         state.json              position, best epoch, checksums of the files above

All files are written under a temporary name and synced; the last act is a rename. Opening takes the newest checkpoint
whose checksums match.

Between two epochs a run can continue with another number of processes. The state of each image then moves to the
process that trains on it from now on; weights and optimizer are the same in all processes.
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

_KEPT = 2  # newest checkpoints; also kept is the newest one between two epochs


@dataclass
class State:
    """The position of a run, and everything else about it that is not a tensor.

    Attributes:
        number: of the checkpoint; it grows with the steps taken.
        stage: position in the recipe's list.
        epoch: under way, from 1; after the last epoch, one more than the stage has.
        step: steps of that epoch that are done.
        best: stage, epoch and score of the best epoch of the stage so far.
        stale: epochs since then.
        done: whether the stage has ended early.
        metrics_bytes: length of `metrics.jsonl`.
        memory: name of the folder that holds the memory's files.
        disk: per rank, the checksum of each memory on disk.
        groups: hyperparameters of the optimizer's groups.
        precision: the scale of gradients in half precision.
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
    """A checkpoint that was read."""

    path: Path
    state: State
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    @property
    def world(self) -> int:
        """Number of processes that saved it."""
        return len(self.state.disk)

    def of_rank(self, rank: int) -> dict[str, Tensor]:
        """Memory, state of the method, sums and records of one process."""
        return load_file(self.path / f"rank{rank}.safetensors")


def save_checkpoint(
    folder: Path,
    devices: Devices,
    state: State,
    model: dict[str, Tensor],
    optimizer: dict[str, Tensor],
    rank: dict[str, Tensor],
) -> None:
    """Write a checkpoint, unless this position has one.

    Every process calls this with the same arguments, except for its own `rank` tensors.
    """
    final, temporary = folder / f"{state.number:08d}", folder / f".{state.number:08d}.tmp"
    if devices.on_main(final.exists):
        return
    try:
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
    except OSError:  # a full disk: what is left would only fill it
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    devices.barrier()


def prune(folder: Path) -> dict[str, Any]:
    """Remove old checkpoints and incomplete ones.

    Keep the newest two, and the newest one between two epochs, where the number of processes may change.

    Returns:
        The `number` of the oldest checkpoint left, and the names of all `memories` that are still needed.
    """
    for leftover in folder.glob(".*.tmp"):
        shutil.rmtree(leftover)
    states = {number: state for number in _numbers(folder) if (state := _state_if_valid(folder / f"{number:08d}"))}
    between = [number for number, state in states.items() if state.step == 0][-1:]
    kept = sorted({*between, *list(states)[-_KEPT:]})
    for number in _numbers(folder):
        if number not in kept:
            _remove(folder / f"{number:08d}")
    return {"number": kept[0], "memories": sorted({states[number].memory for number in kept})}


def open_newest(folder: Path, *, between_epochs: bool = False) -> tuple[Checkpoint, list[str]]:
    """Open the newest complete checkpoint; also returns a sentence about each damaged one that was skipped.

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
            warnings.append(f"Checkpoint {path} is damaged ({error}); using the one before.")
            continue
        if checkpoint.state.step == 0 or not between_epochs:
            return checkpoint, warnings
    detail = f" {warnings[-1]}" if warnings else ""
    raise RunError(f"{folder} holds no checkpoint to resume from; start the run again.{detail}")


def discard_after(folder: Path, number: int) -> None:
    """Remove checkpoints newer than the one to resume from: damaged ones, or those within an epoch."""
    for newer in _numbers(folder):
        if newer > number:
            _remove(folder / f"{newer:08d}")


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal())


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    with atomic_write(path) as file:
        file.write(save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}))


def _remove(path: Path) -> None:
    """Remove a checkpoint; rename it first, so that a partly removed one is not mistaken for a checkpoint."""
    doomed = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed)


def _state_if_valid(path: Path) -> State | None:
    """The state of a checkpoint; None if it is damaged."""
    try:
        return _state(path)
    except (OSError, ValueError, TypeError):
        return None


def _state(path: Path) -> State:
    content = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if content.pop("checksum", None) != _checksum(content):
        raise ValueError("state.json does not match its checksum")
    return State(**content)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> Checkpoint:
    state = _state(path)
    for name, checksum in state.files.items():
        if sha256(path / name) != checksum:
            raise ValueError(f"{name} does not match its checksum")
    return Checkpoint(path, state, *(load_file(path / f"{name}.safetensors") for name in ("model", "optimizer")))


def roll_back(run: Run, checkpoint: Checkpoint) -> None:
    """Roll the memory files of all processes back to a checkpoint; only the main process calls this."""
    for rank, checksums in enumerate(checkpoint.state.disk):
        folder = memory_folder(run, checkpoint.state.memory, rank)
        for name, checksum in checksums.items():
            rows = len(sub_state(checkpoint.of_rank(rank), "shard")["index"])
            path = folder / f"{name}.u8"
            array = JournaledArray(path, (rows, path.stat().st_size // max(rows, 1)), create=False)
            array.roll_back(checkpoint.state.number, checksum)
            array.close()


def saved_parts(run: Run, sampler: Sampler, checkpoint: Checkpoint) -> list[SavedPart]:
    """The memory of each process that saved a checkpoint."""
    found = []
    for rank, checksums in enumerate(checkpoint.state.disk):
        shard = replace(sampler, rank=rank, world=checkpoint.world, batch_size=checkpoint.world).shard
        saved = checkpoint.of_rank(rank)
        assert np.array_equal(shard, sub_state(saved, "shard")["index"].numpy())
        folder = memory_folder(run, checkpoint.state.memory, rank)
        files = {name: folder / f"{name}.u8" for name in checksums}
        found.append(SavedPart(Shard(shard), sub_state(saved, "memory"), files))
    return found
