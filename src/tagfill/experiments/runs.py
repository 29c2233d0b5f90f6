"""The runs of an experiment: train each one once, score it, and keep its outcome in its folder.

Runs on the same pooled features train together where they can, see `tagfill.training.together`; all others train one
by one. An experiment that was interrupted continues where it stopped, and one that is finished only reads outcomes.
If the process of a run dies, the engine starts the run again, and it resumes from its last checkpoint.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, TypeAdapter, ValidationError

from tagfill.dataset import Dataset
from tagfill.dataset.description import FILE as DATASET_FILE
from tagfill.engines import Engine
from tagfill.errors import TagfillError
from tagfill.io import write_json
from tagfill.metrics import Recovered, recovered
from tagfill.models import Backbone, Classifier, choose_device
from tagfill.probabilities import probabilities
from tagfill.progress import SILENT, Bar, Progress
from tagfill.training import Recipe, Run, build_recipe, cache_features, resume, start
from tagfill.training.auto import check_method
from tagfill.training.evaluation import DEFAULT_THRESHOLD, LoadedModel, evaluate_model
from tagfill.training.recipe import with_overrides
from tagfill.training.stage import true_labels
from tagfill.training.together import group_key, train_together

FULL, FLOOR = "full", "an"  # the names of the ceiling (complete labels) and of the baseline (unknown means absent)
OUTCOME_FILE = "outcome.json"
MAX_TOGETHER = 32
"""Runs that train together at most, which all hold their weights and moments in memory."""

Overrides = tuple[tuple[str, Any], ...]  # path of a setting and its value, as `--set` gives them


@dataclass(frozen=True)
class RunJob:
    """A run to be trained and scored, possibly in another process.

    Attributes:
        title: for progress messages.
        recipe: all settings.
        folder: of the run.
        split: to score.
        localize: how to score class maps, see `tagfill.evaluate`; None to skip that.
        recover: whether to score how many missing training labels the model finds.
        device: to train and score on.
    """

    title: str
    recipe: Recipe
    folder: Path
    split: str
    localize: str | None = None
    recover: bool = False
    device: str = "auto"


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        score: mAP on the scored split in percent; NaN if the method refused the data.
        validation: validation mAP of the best epoch in percent, if there is a validation split.
        epoch: the best epoch.
        seconds: of training.
        error: why the method refused the data.
        localization: mAP-loc on the scored split in percent, if class maps were scored.
        split: that was scored.
        recovered: unknown training labels that the model calls present, compared with the truth; None if the truth is
            unknown or nothing is missing.
    """

    score: float
    validation: float | None = None
    epoch: int = 0
    seconds: float = 0.0
    error: str | None = None
    localization: Annotated[float | None, Field(alias="localisation")] = None  # the name in the file
    split: str = "test"
    recovered: Recovered | None = None

    def summary(self) -> str:
        """The score, or the error.

        >>> Outcome(71.238).summary()
        'test mAP 71.24'
        >>> Outcome(float("nan"), split="held").summary()
        'held mAP unknown'
        """
        score = "unknown" if math.isnan(self.score) else f"{self.score:.2f}"
        localization = "" if self.localization is None else f", mAP-loc {self.localization:.2f}"
        return self.error or f"{self.split} mAP {score}{localization}"

    @classmethod
    def read(cls, folder: Path) -> Outcome | None:
        """Read the outcome of the run in a folder; None if it was never scored."""
        path = folder / OUTCOME_FILE
        if not path.exists():
            return None
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except ValidationError as error:
            raise TagfillError(
                f"{path} is damaged: {error.errors()[0]['msg']}. Delete it to score the run again."
            ) from None

    def write(self, folder: Path) -> None:
        """Write the outcome into the folder of the run."""
        write_json(folder / OUTCOME_FILE, TypeAdapter(Outcome).dump_python(self, by_alias=True))


def recipe_content(
    settings: Mapping[str, Any], overrides: Overrides, *, epochs: int, features: object
) -> dict[str, Any]:
    """The settings that all runs of an experiment share, with a single stage.

    Args:
        settings: fields of a recipe.
        overrides: applied to them, also to those of the stage.
        epochs: of the stage.
        features: the feature cache to train on, or None for images.

    >>> recipe_content({"seed": 1}, (("optimizer.lr", 0.1),), epochs=2, features=None)["stages"]
    [{'name': 'main', 'input': 'images', 'epochs': 2, 'optimizer': {'lr': 0.1}}]
    """
    stage = {"name": "main", "input": "images" if features is None else "cache", "epochs": epochs}
    return with_overrides({**settings, "stages": [stage]}, overrides)


def cached_once(
    data: Dataset,
    names: Sequence[str],
    settings: Mapping[str, Any],
    overrides: Overrides,
    *,
    device: str,
    progress: Progress,
) -> str | None:
    """A feature cache for all runs of an experiment; None if they cannot train on one.

    Args:
        data: the images.
        names: of the methods; one that needs pairs of views gets them.
        settings: fields of a recipe.
        overrides: applied to them.
        device: of the backbone.
        progress: shows the extraction.
    """
    content = recipe_content({**settings, "dataset": str(data.folder)}, overrides, epochs=1, features=None)
    content["stages"] = [{**content["stages"][0], "name": name, "method": name, "options": {}} for name in names]
    return cache_features(
        data, build_recipe({**content, "method": names[0], "options": {}}), device=device, progress=progress
    ).features


def jobs_on(device: str, jobs: int | None) -> int | None:
    """The number of processes: an accelerator is not shared unless the user says so; None is one per core."""
    return 1 if jobs is None and choose_device(device).type != "cpu" else jobs


def check_job(job: RunJob) -> None:
    """Raise for options that the method does not have, and if the folder holds a run with other settings."""
    check_method(job.recipe)
    description = job.folder / "run.json"
    if description.exists():
        made = json.loads(description.read_text(encoding="utf-8"))["recipe_hash"]
        if made != job.recipe.hash():
            raise TagfillError(f"{job.folder} holds a run with other settings; choose another --out.")


def run_jobs(
    jobs: Sequence[RunJob], engine: Engine, progress: Progress, *, bar: Bar | None = None
) -> Iterator[Outcome]:
    """Run jobs on an engine and yield their outcomes in the same order.

    Args:
        jobs: the runs.
        engine: that runs them.
        progress: receives a message about each run.
        bar: to advance, if these are not all runs of the experiment; by default a new one.
    """
    groups, next_one = group_jobs(jobs, engine), 0
    known: dict[int, Outcome] = {}
    with nullcontext(bar) if bar is not None else progress.bar("runs", len(jobs), "runs") as counter:
        chosen = [[jobs[number] for number in group] for group in groups]
        for group, outcomes in zip(groups, engine.map(run_group, chosen, needs=_needed_files(jobs)), strict=True):
            for number, outcome in zip(group, outcomes, strict=True):
                counter.advance()
                progress.say(f"{jobs[number].title}: {outcome.summary()}")
                known[number] = outcome
            while (number := next_one) in known:
                yield known.pop(number)
                next_one += 1


def group_jobs(jobs: Sequence[RunJob], engine: Engine) -> list[list[int]]:
    """The numbers of the jobs that train together, see `tagfill.training.together`; each process gets a part.

    Jobs that are scored, or that a cluster of unknown size runs, stay alone.
    """
    workers = engine.workers or os.cpu_count() or 1
    groups: dict[Hashable, list[int]] = {}
    open_dataset = functools.cache(Dataset.open)
    for number, job in enumerate(jobs):
        key: Hashable | None = None
        if engine.address is None and not _is_scored(Outcome.read(job.folder), job):
            # what cannot be opened is the error of its run
            with suppress(TagfillError):
                key = group_key(job.recipe, open_dataset(job.recipe.dataset), job.device)
        groups.setdefault(number if key is None else (key, None), []).append(number)
    split = []
    for group in groups.values():
        size = min(math.ceil(len(group) / workers), MAX_TOGETHER)
        split += [group[first : first + size] for first in range(0, len(group), size)]
    return sorted(split)


def _needed_files(jobs: Sequence[RunJob]) -> list[Path]:
    """What every machine must have: the datasets, the feature caches, and the folders that runs are written to."""
    needed = {job.folder.absolute().parent for job in jobs}
    for folder in needed:
        folder.mkdir(parents=True, exist_ok=True)
    needed |= {Path(job.recipe.dataset).absolute() / DATASET_FILE for job in jobs}
    needed |= {Path(cache).absolute() / "manifest.json" for job in jobs if (cache := job.recipe.final_features)}
    return sorted(needed)


def _is_scored(outcome: Outcome | None, job: RunJob) -> TypeGuard[Outcome]:
    """Whether an outcome is all that a job asks for."""
    return (
        outcome is not None
        and outcome.split == job.split
        and (job.localize is None or outcome.localization is not None)
    )


def run_group(jobs: Sequence[RunJob]) -> list[Outcome]:
    """Train jobs together and score them; a single one is trained as `run_job` does."""
    if len(jobs) == 1:
        return [run_job(jobs[0])]
    runs = train_together([(job.recipe, job.folder) for job in jobs], device=jobs[0].device)
    finished = [run for run in runs if isinstance(run, Run)]
    backbone = Classifier.load(finished[0].model_folder).backbone if finished else None
    assert backbone is None or isinstance(backbone, Backbone)
    open_dataset = functools.cache(Dataset.open)
    return [
        _refused(job, run) if isinstance(run, TagfillError) else _score(job, run, open_dataset, backbone)
        for job, run in zip(jobs, runs, strict=True)
    ]


def run_job(job: RunJob) -> Outcome:
    """Train and score a run, continue one that was interrupted, or read the outcome of a finished one."""
    known = Outcome.read(job.folder)
    if _is_scored(known, job):
        return known
    try:
        # `force` clears what a process left that was killed before its first checkpoint
        if Run(job.folder).begun:
            run = resume(job.folder, device=job.device, progress=SILENT)
        else:
            run = start(Dataset.open(job.recipe.dataset), job.recipe, out=job.folder, device=job.device, force=True)
    except TagfillError as error:
        return _refused(job, error)
    return _score(job, run)


def _score(
    job: RunJob,
    run: Run,
    open_dataset: Callable[[str], Dataset] = Dataset.open,
    backbone: Backbone | None = None,
) -> Outcome:
    """Score the run of a job, and write the outcome into its folder; `backbone` as for `score_run`."""
    try:
        dataset = open_dataset(job.recipe.dataset)
        outcome = score_run(
            run,
            dataset,
            split=job.split,
            localize=job.localize,
            recover=job.recover,
            device=job.device,
            backbone=backbone,
        )
    except TagfillError as error:
        return _refused(job, error)
    outcome.write(job.folder)
    return outcome


def _refused(job: RunJob, error: TagfillError) -> Outcome:
    """The outcome of a job that cannot be trained or scored."""
    return Outcome(float("nan"), error=str(error), split=job.split)


def score_run(
    run: Run,
    dataset: Dataset,
    *,
    split: str,
    localize: str | None = None,
    recover: bool = False,
    device: str = "auto",
    backbone: Backbone | None = None,
) -> Outcome:
    """Score a finished run on the features that it was last trained on, or on images.

    Args:
        run: the run.
        dataset: that it was trained on.
        split: to score.
        localize: how to score class maps, see `tagfill.evaluate`; None to skip that.
        recover: whether to score how many missing training labels the model finds.
        device: of the network.
        backbone: of a run on the same features, which need not be loaded again.
    """
    model = LoadedModel.open(
        run,
        dataset,
        features=run.recipe.final_features,
        device=device,
        maps=localize is not None,
        backbone=backbone,
    )
    result = evaluate_model(model, split, localize=localize)
    timings = (run.folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()
    return Outcome(
        100 * result.mean,
        run.best.get("val_mAP"),
        run.best["epoch"],
        float(sum(json.loads(line)["seconds"] for line in timings)),
        localization=None if result.localized is None else 100 * result.localized.mean,
        split=split,
        recovered=recovered_labels(model) if recover else None,
    )


def recovered_labels(model: LoadedModel) -> Recovered | None:
    """Compare what a model predicts for unknown training labels with the truth of simulated data.

    A label is called present if its probability reaches the threshold that validation chose for its class.

    Args:
        model: with the dataset that it was trained on.

    Returns:
        None if the truth is unknown, or if no present label is missing.
    """
    dataset = model.dataset
    if dataset.truth is None:
        return None
    truth = true_labels(dataset, "train")
    thresholds = model.model.thresholds or (DEFAULT_THRESHOLD,) * len(dataset.classes)
    labels = dataset.labels("train")
    called = right = missing = 0
    for index, logits in model.logit_batches("train"):
        present = probabilities(logits, model.model.calibration) >= np.array(thresholds)
        found = recovered(present, labels.rows(index), truth.rows(index))
        called, right, missing = called + found.called, right + found.right, missing + found.missing
    return Recovered(called, right, missing) if missing else None


def complete_dataset(data: Dataset) -> Dataset:
    """A simulated dataset with the labels that it was simulated from.

    Images and splits stay those of the simulated dataset, since a protocol may have split validation from training.
    """
    assert data.truth is not None
    truth = Dataset.open(data.truth)
    if truth.classes != data.classes:
        raise TagfillError(f"The truth of {data.name}, {data.truth}, has other classes.")
    names = pa.array(data.names())
    rows = pa.Table.from_batches(
        [batch.filter(pc.is_in(batch["image"], value_set=names)) for batch in truth.rows().to_batches()],
        schema=truth.rows().schema,
    )
    return data.replace(name=f"{data.name}-complete", annotations=rows, folder=None, truth=None, protocol=None)


def save_complete_dataset(data: Dataset, folder: Path) -> Path:
    """Save a simulated dataset with complete labels, unless that was done before; return the folder."""
    if not (folder / "dataset.yaml").exists():
        complete_dataset(data).save(folder)
    return folder
