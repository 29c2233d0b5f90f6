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

from bookkeeping import ROOT, say

Scores = dict[str, Any]

QUICK = "quick"
"""Name of the work folder of a first picture."""

RUNS = ROOT / "benchmarks" / "results" / "coco14-runs.json"
"""All runs that have ended, so that the benchmark can go on in another work folder."""

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


def train_all(jobs: Sequence[Job], work: Path, processes: int) -> list[Scores]:
    """Validation scores in the order of the jobs; what was trained before is read."""
    left = [job for job in {job.key(): job for job in jobs}.values() if known(job, work) is None]
    if processes == 1:  # without starting a process per job, which costs more than training a head
        for number, job in enumerate(left, start=1):
            _say(f"{number} of {len(left)}", job, train(job, work))
    elif left:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(train, job, work): job for job in left}
            for number, done in enumerate(as_completed(running), start=1):
                _say(f"{number} of {len(left)}", running[done], done.result())
    return [known(job, work) or {} for job in jobs]


def _say(number: str, job: Job, scores: Scores) -> None:
    listed = [name for name in ("val", "test", "boosted", "epoch", "seconds", "CPU seconds") if name in scores]
    told = scores.get("refused") or ", ".join(f"{name} {scores[name]:.2f}" for name in listed)
    say(f"{number}: {job.data} {job.method} {job.train} lr {job.lr:g} seed {job.seed}: {told}")


def known(job: Job, work: Path) -> Scores | None:
    """What a run scored, if it has ended, here or where the committed results come from."""
    place = _record(job, work)
    if place.exists():
        scores: Scores = json.loads(place.read_text(encoding="utf-8"))["scores"]
        return scores
    kept = {} if work.name == QUICK else _kept()
    return dict(kept[job.key()]["scores"]) if job.key() in kept else None


def all_runs(work: Path) -> dict[str, Any]:
    """Every run that has ended by its key: settings and scores."""
    places = (work / "scores").glob("*.json")
    return _kept() | {place.stem: json.loads(place.read_text(encoding="utf-8")) for place in places}


@functools.cache
def _kept() -> dict[str, Any]:
    return json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}


def train(job: Job, work: Path) -> Scores:
    """Train and write down the validation score; a run that was interrupted is resumed. Its folder stays."""
    import torch

    import tagfill
    from tagfill.errors import TagfillError
    from tagfill.progress import SILENT
    from tagfill.training import resume

    torch.set_num_threads(1)
    begun, folder = sum(os.times()[:2]), _folder(job, work)
    try:
        if any((folder / "checkpoints").glob("[0-9]*")):
            run = resume(folder, progress=SILENT)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            run = tagfill.train(
                _dataset(work / "data" / job.data), method=job.method, options=job.options, head=job.head,
                head_options=job.head_options, features=_cache(job, work), train=job.train, lr=job.lr,
                epochs=job.epochs, batch_size=job.batch, seed=job.seed, out=folder, progress=SILENT,
            )  # fmt: skip
    except TagfillError as error:
        return _write(job, work, {"refused": str(error)})
    timings = [json.loads(line) for line in (folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = {
        "val": run.best["val_mAP"],
        "epoch": run.best["epoch"],
        "seconds": sum(line["seconds"] for line in timings),
        "CPU seconds": sum(os.times()[:2]) - begun,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # of this process so far
    }
    return _write(job, work, scores)


def score(job: Job, work: Path, *, boosted: bool) -> Scores:
    """Score a trained run on the test photos, without and with boost, and remove its folder."""
    import torch

    import tagfill
    from tagfill.progress import SILENT

    scores = known(job, work) or train(job, work)
    if "refused" in scores or "boosted" in scores or ("test" in scores and not boosted):
        return scores
    folder, data = _folder(job, work), _dataset(work / "data" / job.data)
    if not folder.exists():
        train(job, work)
    torch.set_num_threads(1)
    for name, boost in {"test": None, **({"boosted": BOOST} if boosted else {})}.items():
        result = tagfill.evaluate(folder, data, split="test", features=_cache(job, work), boost=boost, progress=SILENT)
        scores[name] = 100 * result.mean
    _say("tested", job, scores)
    forget(job, work)
    return _write(job, work, scores)


def forget(job: Job, work: Path) -> None:
    """Remove the folder of a run; its scores stay."""
    shutil.rmtree(_folder(job, work), ignore_errors=True)


def _write(job: Job, work: Path, scores: Scores) -> Scores:
    from tagfill.io import write_json

    _record(job, work).parent.mkdir(parents=True, exist_ok=True)
    write_json(_record(job, work), {"job": asdict(job), "scores": scores})
    return scores


def _cache(job: Job, work: Path) -> Path:
    return work / "features" / ("end" if job.train == "head" else "blocks5")


def _folder(job: Job, work: Path) -> Path:
    return work / "runs" / job.key()


@functools.lru_cache(maxsize=4)
def _dataset(folder: Path) -> Any:
    import tagfill

    return tagfill.Dataset.open(folder)


def _record(job: Job, work: Path) -> Path:
    return work / "scores" / f"{job.key()}.json"
