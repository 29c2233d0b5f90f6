"""One entry of a study: labels that a budget bought, a `cam` head trained on them, and its scores on test images."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from boxes import boxed

SIZES = {"train": 600, "val": 200, "test": 400}
EPOCHS = 25
SCORES = ("cls", "loc_boxes", "loc_masks")
VIEWS = "eval,flip,crops:2"
Scores = dict[str, dict[str, list[Any]]]


@dataclass(frozen=True)
class Entry:
    """What takes part: a kind of annotation, the method that learns from it, and the views that it needs."""

    kind: str
    method: str = "patchml"
    options: dict[str, Any] = field(default_factory=dict)
    terms: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of what is added to patchml
    views: str = VIEWS


@dataclass(frozen=True)
class Job:
    """An entry at a budget, with a seed."""

    name: str
    entry: Entry
    budget: float
    seed: int
    epochs: int
    out: Path


def parser(about: str, seeds: int) -> argparse.ArgumentParser:
    """Options that all studies have."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--seeds", type=int, default=seeds)
    made.add_argument("--epochs", type=int, default=EPOCHS)
    made.add_argument("--jobs", type=int, default=os.cpu_count())
    made.add_argument("--out", type=Path, default=Path("runs/patches"), help="where runs are kept")
    return made


def measure(entries: Mapping[str, Entry], budgets: tuple[float, ...], options: argparse.Namespace) -> dict[str, Scores]:
    """Of each budget and entry: what was bought and the scores, a value a seed."""
    import tagfill

    data = tagfill.scenes.make(**SIZES)
    for views in {entry.views for entry in entries.values()}:
        tagfill.features(data, views=views)
    if not (options.out / "boxes" / "dataset.yaml").exists():
        boxed(data).save(options.out / "boxes")
    jobs = [Job(name, entry, budget, seed, options.epochs, options.out)
            for budget in budgets for name, entry in entries.items() for seed in range(options.seeds)]  # fmt: skip
    found: dict[str, Scores] = {f"{budget:g}": {name: {} for name in entries} for budget in budgets}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for number, (job, outcome) in enumerate(zip(jobs, pool.map(train, jobs), strict=True), start=1):
            for key, value in outcome.items():
                found[f"{job.budget:g}"][job.name].setdefault(key, []).append(value)
            shown = ", ".join(f"{key} {outcome[key]:.2f}" for key in SCORES)
            say(f"{number} of {len(jobs)}: {job.name} at {job.budget:g} %, seed {job.seed}: {shown}")
    return found


def train(job: Job) -> dict[str, float]:
    """What a budget bought, and what the model that learnt from it scores on test; made or found."""
    import tagfill
    from tagfill.training import resume

    entry = job.entry
    folder = job.out / f"{job.name.replace(', ', '-')}-{job.budget:g}-s{job.seed}"
    record = folder / "scores.json"
    if record.exists():
        return dict(json.loads(record.read_text(encoding="utf-8")))
    data = tagfill.scenes.make(**SIZES)
    cache = tagfill.features(data, views=entry.views)
    place = job.out / f"{entry.kind}-data-{job.budget:g}-s{job.seed}"
    if not (place / "dataset.yaml").exists():
        tagfill.protocols.budget(data, percent=job.budget, kind=entry.kind, seed=job.seed).save(place)
    part = tagfill.Dataset.open(place)
    if (folder / "run.json").exists():
        run = resume(folder)
    else:
        settings = {"method": entry.method, "options": {"patchml": entry.options, **entry.terms}}
        run = tagfill.train(part, features=cache, epochs=job.epochs, seed=job.seed, out=folder, **settings)
    scores = {"cls": 0.0}
    for truth, dataset in (("masks", data), ("boxes", tagfill.Dataset.open(job.out / "boxes"))):
        result = tagfill.evaluate(run, dataset, split="test", features=cache.folder, localize="minmax")
        scores |= {"cls": 100 * result.mean, f"loc_{truth}": 100 * result.localized.mean}
    kept = part.protocol["kept"]
    scores |= {key: kept[key] for key in ("positives", "negatives", "images", "seconds")}
    record.write_text(json.dumps(scores), encoding="utf-8")
    return scores


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
