"""Making the runs of an experiment, wherever an engine puts them: each run only once.

Each run leaves its outcome in its folder, so an experiment that was stopped goes on where it stopped, and one that is
asked for again only reads. A run whose process died is begun again by the engine and resumes from its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tagfill import methods
from tagfill.engines import Engine
from tagfill.errors import TagfillError
from tagfill.experiments.outcomes import Outcome, train_and_score
from tagfill.progress import Progress
from tagfill.training import Recipe


@dataclass(frozen=True)
class Job:
    """One run: everything that another process needs to make it.

    Attributes:
        title: what it is, for whoever watches.
        recipe: all its settings.
        folder: of the run.
        split: that gives the scores.
        localise: how class maps are scored, see `tagfill.evaluate`; None if they are not.
        recover: look for training labels that were not given, and hold them against the truth where it is known.
    """

    title: str
    recipe: Recipe
    folder: Path
    split: str
    localise: str | None = None
    recover: bool = False


def check(job: Job) -> None:
    """Raise for settings that no data could make right, and for a run of other settings, before anything is trained."""
    methods.create(job.recipe.method, job.recipe.options)
    description = job.folder / "run.json"
    if description.exists():
        made = json.loads(description.read_text(encoding="utf-8"))["recipe_hash"]
        if made != job.recipe.hash():
            raise TagfillError(f"{job.folder} holds a run with other settings; choose another --out.")


def run_all(jobs: Sequence[Job], engine: Engine, progress: Progress) -> Iterator[Outcome]:
    """Outcomes in the order of the jobs, made by an engine."""
    with progress.bar("runs", len(jobs), "runs") as bar:
        for job, outcome in zip(jobs, engine.map(make, jobs), strict=True):
            bar.advance()
            progress.say(f"{job.title}: {outcome.told(job.split)}")
            yield outcome


def make(job: Job) -> Outcome:
    """Make one run and score it, or read how it ended."""
    known = Outcome.read(job.folder)
    if known is not None and known.split == job.split and (job.localise is None or known.localisation is not None):
        return known
    try:
        outcome = train_and_score(job.recipe, job.folder, split=job.split, localise=job.localise, recover=job.recover)
    except TagfillError as error:
        return Outcome.refused(str(error))
    outcome.write(job.folder)
    return outcome
