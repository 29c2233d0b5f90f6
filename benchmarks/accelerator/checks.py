"""Whether methods train on a device, runs resume there, and two processes train together."""

from __future__ import annotations

import hashlib
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import say

import tagfill
from tagfill.methods import METHODS, TERMS, create
from tagfill.progress import SILENT
from tagfill.training import Run, build_recipe, start

BACKBONE, SIZE, BATCH, EPOCHS = "test_resnet", 64, 16, 2
QUICK_METHODS = ("an", "role", "fixmatch", "en+scl", "patchml")
PATIENCE = 1200.0  # seconds
RESUMED = ["--method", "en+scl", "--train", "all", "--epochs", "6", "--save-steps", "3"]
TOGETHER = ["--method", "en", "--train", "all", "--epochs", "2"]


def scenes(work: Path, *, quick: bool) -> tuple[Path, Path]:
    """Rendered photos with complete labels and marks, and with one label each and scores of another tagger."""
    full, single = work / "full", work / "single"
    if not single.exists():
        complete = tagfill.scenes.make(
            full, train=BATCH * (2 if quick else 4), val=24, test=1, size=SIZE, progress=SILENT
        )
        part = tagfill.protocols.single_positive(complete, seed=0).save(single)
        truth, rng = complete.labels().dense() == 1, np.random.default_rng(0)
        scores = 2.0 * truth - 1 + rng.normal(size=truth.shape)
        columns = {name: scores[:, number] for number, name in enumerate(part.classes)}
        table = pa.table({"image": complete.names(), **columns})
        tagfill.evidence.import_scores(table, part, name="tagger", scale="logits")
    return full, single


def check_methods(work: Path, device: str, *, quick: bool) -> dict[str, Any]:
    """Each method on the device, on the CPU, and on the device in bfloat16, from the same weights and views."""
    full, single = scenes(work, quick=quick)
    plain = [name for name in METHODS if name not in TERMS]
    terms = [f"{'patchml' if name == 'patchcluster' else 'en'}+{name}" for name in sorted(TERMS)]
    found = {}
    for number, name in enumerate(QUICK_METHODS if quick else [*plain, *terms]):
        say(f"methods: {name}")
        needs = create(name, {}).needs
        data = full if name.startswith("bce") or needs & {"marks"} else single
        ways = {"cpu": ("cpu", "float32"), "bfloat16": (device, "bfloat16")}
        if device != "cpu":
            ways["device"] = device, "float32"
        try:
            runs = {
                way: trained(work / "methods" / f"{number}-{way}", data, name, *setting)
                for way, setting in ways.items()
            }
            found[name] = compared({"device": runs["cpu"], **runs})
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return found


def trained(out: Path, data: Path, method: str, device: str, precision: str) -> Run:
    """A run of a few steps with SGD, which does not magnify the rounding of small gradients as Adam does."""
    settings = {"method": method, "backbone": BACKBONE, "pretrained": False, "image_size": SIZE, "batch_size": BATCH}
    sgd = [("optimizer.name", "sgd"), ("optimizer.lr", 0.01), ("precision", precision)]
    recipe = build_recipe({"dataset": str(data), **settings}, epochs=EPOCHS, train="all", overrides=sgd)
    return start(tagfill.Dataset.open(data), recipe, out=out, device=device)


def compared(runs: dict[str, Run]) -> dict[str, Any]:
    """How far the losses and weights of the runs are from those of the CPU in float32.

    The distance of weights is relative to the distance that training moved them.
    """
    losses = {way: [sum(line["loss"].values()) for line in run.metrics()] for way, run in runs.items()}
    ends = {way: weights(run, -1) for way, run in runs.items()}
    moved = (ends["cpu"] - weights(runs["cpu"], 0)).norm().item()
    seen = [loss for own in losses.values() for loss in own]
    finite = all(map(math.isfinite, seen)) and all(bool(end.isfinite().all()) for end in ends.values())
    return {
        "finite": finite,
        **{
            way: {
                "loss": max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(losses[way], losses["cpu"], strict=True)),
                "weights": (ends[way] - ends["cpu"]).norm().item() / moved,
            }
            for way in ("device", "bfloat16")
        },
    }


def weights(run: Run, number: int) -> torch.Tensor:
    """All weights of the first checkpoint (0), which is saved before the first step, or of the last one (-1)."""
    state = load_file(sorted(run.checkpoints.glob("[0-9]*"))[number] / "model.safetensors")
    return torch.cat([value.flatten() for name, value in sorted(state.items()) if value.is_floating_point()])


def check_resuming(work: Path, device: str, *, quick: bool) -> dict[str, Any]:
    """A run, the same again, and one that is killed and resumed; whether they end with the same bytes."""
    _, single = scenes(work, quick=quick)
    try:
        hashes = []
        for name in ("once", "again"):
            finish(launch(work, single, device, work / name, RESUMED))
            hashes.append(hash_of(work / name))
        process = launch(work, single, device, work / "killed", RESUMED)
        end = time.monotonic() + PATIENCE
        while process.poll() is None and lines(work / "killed") < 3 and time.monotonic() < end:
            time.sleep(0.02)
        killed = process.poll() is None
        if killed:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        after = lines(work / "killed")
        finish(command(["train", "--resume", str(work / "killed"), "--device", device, "--quiet"], work / "killed.log"))
    except RuntimeError as error:
        return {"error": str(error)}
    same = hash_of(work / "killed") == hashes[0]
    return {"killed": killed, "after": after, "repeats": hashes[0] == hashes[1], "same": same}


def check_processes(work: Path, device: str, *, quick: bool) -> dict[str, Any]:
    """One process and two, from the same weights."""
    count = torch.get_device_module(device).device_count() if device == "cuda" else 2 if device == "cpu" else 1
    if count < 2:
        return {"skipped": f"{count} device"}
    _, single = scenes(work, quick=quick)
    found: dict[str, Any] = {}
    try:
        for processes in (1, 2):
            out = work / f"processes-{processes}"
            finish(launch(work, single, device, out, [*TOGETHER, "--processes", str(processes)]))
            last = Run.open(out).metrics()[-1]
            found[str(processes)] = {"loss": sum(last["loss"].values()), "val_mAP": last["val_mAP"]}
    except RuntimeError as error:
        return {"error": str(error)}
    return found


def launch(work: Path, data: Path, device: str, out: Path, more: list[str]) -> subprocess.Popen[bytes]:
    """Start a run of its own process."""
    sizes = ["--image-size", str(SIZE), "--batch-size", str(BATCH), "--backbone", BACKBONE, "--pretrained", "none"]
    words = ["train", str(data), *more, *sizes, "--device", device, "--out", str(out), "--quiet"]
    return command(words, work / f"{out.name}.log")


def command(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "tagfill", *words], stdout=file, stderr=file, start_new_session=True, cwd=log.parent
        )


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for a command; raise if it fails."""
    if process.wait(PATIENCE) != 0:
        raise RuntimeError(f"'{' '.join(map(str, process.args[3:5]))}' ended with exit code {process.returncode}")


def lines(out: Path) -> int:
    """Epochs that have ended."""
    path = out / "metrics.jsonl"
    return len(path.read_text("utf-8").splitlines()) if path.exists() else 0


def hash_of(out: Path) -> str:
    """Of the model and the metrics of a run."""
    files = (out / "best" / "model.safetensors", out / "metrics.jsonl")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
