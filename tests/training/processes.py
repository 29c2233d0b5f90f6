"""Training in real processes, and ending them from outside."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tagfill.cli import main

PATIENCE = 240.0  # seconds until a run that neither ends nor reaches its moment is a failure


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """`tagfill …` as a process group of its own."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV"))}
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.Popen(
        [sys.executable, "-m", "tagfill", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )


def finish(process: subprocess.Popen[bytes]) -> str:
    """Wait for a process to succeed; returns its output."""
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output.decode()
    return output.decode()


def run_tagfill(*arguments: str) -> str:
    """Run a command to its end."""
    return finish(start(*arguments))


def run_here(*arguments: str, code: int = 0) -> None:
    """Run a command to its end in this process, which has torch loaded already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tagfill", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert (ended.value.code or 0) == code


def kill_when(process: subprocess.Popen[bytes], moment: Callable[[], bool], rng: random.Random) -> bool:
    """SIGKILL the whole group a little after `moment` first holds; False if the process ended before."""
    begin = time.monotonic()
    while not moment():
        if process.poll() is not None:
            output, _ = process.communicate()
            assert process.returncode == 0, output.decode()
            return False
        assert time.monotonic() - begin < PATIENCE, "the moment never came"
        time.sleep(0.0005)
    time.sleep(rng.choice([0.0, 0.0, 0.002, 0.01, 0.03]))
    ended = process.poll() is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return not ended


def mid_epoch(run: Path) -> Callable[[], bool]:
    """A new checkpoint appeared."""
    folder = run / "checkpoints"
    before = _numbers(folder)
    return lambda: bool(_numbers(folder) - before)


def between_epochs(run: Path) -> Callable[[], bool]:
    """Another epoch was logged."""
    before = _size(run / "metrics.jsonl")
    return lambda: _size(run / "metrics.jsonl") > before


def during_save(run: Path) -> Callable[[], bool]:
    """A checkpoint is being written, after at least one more was completed."""
    folder = run / "checkpoints"
    before = _numbers(folder)
    return lambda: any(folder.glob(".*.tmp")) and bool(_numbers(folder) - before)


MOMENTS = {"mid-epoch": mid_epoch, "between epochs": between_epochs, "during a save": during_save}


def _numbers(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("[0-9]*")}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def outcome(run: Path) -> dict[str, bytes]:
    """Everything that a finished run must have in common with another one of the same making."""
    newest = max((run / "checkpoints").glob("[0-9]*"))
    files = [*newest.glob("*.safetensors"), *(run / "memory").rglob("*.u8"), run / "best" / "model.safetensors"]
    named = {str(path.relative_to(newest if path.is_relative_to(newest) else run)): path.read_bytes() for path in files}
    return named | {"metrics": (run / "metrics.jsonl").read_bytes()}
