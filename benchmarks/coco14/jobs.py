"""Runs: what is trained on what, made once and remembered by all its settings."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import resource
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bookkeeping import say

Scores = dict[str, Any]

BOOST = 5.0
"""At inference: scores of class maps above 0 are multiplied by it."""


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        data: name of the dataset that it learns from and is scored on.
        method: or several joined by `+`.
        options: of each method.
        head: its name.
        head_options: its options.
        train: `head` on the last features, or `top` on those of the inner stage.
        lr: learning rate.
        epochs: in all.
        batch: photos per step.
        seed: of the order of photos and of initial weights.
    """

    data: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    head: str = "linear"
    head_options: dict[str, Any] = field(default_factory=dict)
    train: str = "head"
    lr: float = 1e-3
    epochs: int = 10
    batch: int = 256
    seed: int = 0

    def key(self) -> str:
        """The same for the same run."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def run_all(jobs: Sequence[Job], work: Path, processes: int) -> list[Scores]:
    """Scores in the order of the jobs; what was scored before is read."""
    left = [job for job in {job.key(): job for job in jobs}.values() if not _record(job, work).exists()]
    if processes == 1:  # without starting a process per job, which costs more than training a head
        for number, job in enumerate(left, start=1):
            _say(f"{number} of {len(left)}", job, make(job, work))
    elif left:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(make, job, work): job for job in left}
            for number, done in enumerate(as_completed(running), start=1):
                _say(f"{number} of {len(left)}", running[done], done.result())
    return [known(job, work) or {} for job in jobs]


def _say(number: str, job: Job, scores: Scores) -> None:
    told = scores.get("refused") or ", ".join(
        f"{name} {scores[name]:.2f}" for name in ("val", "test", "boosted", "epoch", "seconds", "CPU seconds")
    )
    say(f"{number}: {job.data} {job.method} lr {job.lr:g} seed {job.seed}: {told}")


def known(job: Job, work: Path) -> Scores | None:
    """What a run scored, if it has ended."""
    place = _record(job, work)
    return json.loads(place.read_text(encoding="utf-8"))["scores"] if place.exists() else None


def make(job: Job, work: Path) -> Scores:
    """Train, score and write down; a run that was interrupted is resumed."""
    import torch

    from tagfill.errors import TagfillError
    from tagfill.io import write_json

    torch.set_num_threads(1)
    folder = work / "runs" / job.key()
    try:
        scores = _trained_and_scored(job, work, folder)
    except TagfillError as error:
        scores = {"refused": str(error)}
    _record(job, work).parent.mkdir(parents=True, exist_ok=True)
    write_json(_record(job, work), {"job": asdict(job), "scores": scores})
    shutil.rmtree(folder, ignore_errors=True)
    return scores


def _trained_and_scored(job: Job, work: Path, folder: Path) -> Scores:
    import tagfill
    from tagfill.progress import SILENT
    from tagfill.training import resume

    begun = sum(os.times()[:2])
    data = _dataset(work / "data" / job.data)
    cache = work / "features" / ("end" if job.train == "head" else "blocks5")
    if any((folder / "checkpoints").glob("[0-9]*")):
        run = resume(folder, progress=SILENT)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        run = tagfill.train(
            data, method=job.method, options=job.options, head=job.head, head_options=job.head_options,
            features=cache, train=job.train, lr=job.lr, epochs=job.epochs, batch_size=job.batch, seed=job.seed,
            out=folder, progress=SILENT,
        )  # fmt: skip
    plain, boosted = (
        100 * tagfill.evaluate(run, data, split="test", features=cache, boost=boost, progress=SILENT).mean
        for boost in (None, BOOST)
    )
    timings = [json.loads(line) for line in (folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "val": run.best["val_mAP"],
        "test": plain,
        "boosted": boosted,
        "epoch": run.best["epoch"],
        "seconds": sum(line["seconds"] for line in timings),
        "CPU seconds": sum(os.times()[:2]) - begun,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # of this process so far
    }


@functools.lru_cache(maxsize=4)
def _dataset(folder: Path) -> Any:
    import tagfill

    return tagfill.Dataset.open(folder)


def _record(job: Job, work: Path) -> Path:
    return work / "scores" / f"{job.key()}.json"
