"""Runs: what is trained on what, made once and remembered by all its settings."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bookkeeping import say

Scores = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        data: name of the dataset that it learns from and is scored on.
        method: or several joined by `+`.
        options: of each method.
        head: its name.
        head_options: its options.
        cache: name of the feature cache; None trains on images.
        lr: learning rate.
        epochs: in all.
        seed: of the order of images and of initial weights.
        settings: any other settings of a recipe.
        localise: also score class maps against boxes.
    """

    data: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    head: str = "linear"
    head_options: dict[str, Any] = field(default_factory=dict)
    cache: str | None = "views"
    lr: float = 1e-3
    epochs: int = 10
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    localise: bool = False

    def key(self) -> str:
        """The same for the same run."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def run_all(jobs: Sequence[Job], work: Path, processes: int) -> list[Scores]:
    """Scores in the order of the jobs; what was scored before is read."""
    left = [job for job in {job.key(): job for job in jobs}.values() if not _record(job, work).exists()]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(make, job, work): job for job in left}
        for number, done in enumerate(as_completed(running), start=1):
            job, scores = running[done], done.result()
            told = scores.get("refused") or ", ".join(f"{k} {scores[k]:.2f}" for k in ("val", "test", "seconds"))
            say(f"{number} of {len(left)}: {job.data} {job.method} {job.head} lr {job.lr:g} seed {job.seed}: {told}")
    return [json.loads(_record(job, work).read_text(encoding="utf-8"))["scores"] for job in jobs]


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
    import numpy as np

    import tagfill
    from tagfill.training import resume

    data = tagfill.Dataset.open(work / "data" / job.data)
    cache = None if job.cache is None else work / "features" / job.cache
    if any((folder / "checkpoints").glob("[0-9]*")):
        run = resume(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        run = tagfill.train(
            data, method=job.method, options=job.options, head=job.head, head_options=job.head_options,
            features=cache, lr=job.lr, epochs=job.epochs, seed=job.seed, out=folder, **_settings(job),
        )  # fmt: skip
    fine_tuned = any(stage.get("train") == "all" for stage in job.settings.get("stages", []))
    seen = None if fine_tuned else cache  # features are those of the backbone as it was
    result = tagfill.evaluate(run, data, split="test", features=seen, localize="minmax" if job.localise else None)
    lines = (folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        "val": run.best["val_mAP"],
        "test": 100 * result.mean,
        "mF1": 100 * float(np.nanmean(result.counts.f1)),
        "epoch": run.best["epoch"],
        "seconds": sum(json.loads(line)["seconds"] for line in lines),
        **({"loc": 100 * result.localized.mean} if result.localized is not None else {}),
    }


def _settings(job: Job) -> dict[str, Any]:
    """Other settings; stages that name no rate of their own have the job's."""
    if "stages" not in job.settings:
        return job.settings
    rate = {"optimizer": {"lr": job.lr}}
    return {**job.settings, "stages": [{**rate, **stage} for stage in job.settings["stages"]]}


def _record(job: Job, work: Path) -> Path:
    return work / "scores" / f"{job.key()}.json"
