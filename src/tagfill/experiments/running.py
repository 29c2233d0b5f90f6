"""Making the runs of an experiment: one process a core, each run only once.

Each run leaves its outcome in its folder, so an experiment that was stopped goes on where it stopped, and one that is
asked for again only reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tagfill import methods
from tagfill.errors import TagfillError
from tagfill.experiments.outcomes import Outcome, train_and_score
from tagfill.files import write_json
from tagfill.progress import Progress
from tagfill.training import Recipe

OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Job:
    """One run: everything that another process needs to make it.

    Attributes:
        title: what it is, for whoever watches.
        recipe: all its settings.
        folder: of the run.
        split: that gives the scores.
        localise: how class maps are scored, see `tagfill.evaluate`; None if they are not.
    """

    title: str
    recipe: Recipe
    folder: Path
    split: str
    localise: str | None = None


def check(job: Job) -> None:
    """Raise for settings that no data could make right, and for a run of other settings, before anything is trained."""
    methods.create(job.recipe.method, job.recipe.options)
    description = job.folder / "run.json"
    if description.exists():
        made = json.loads(description.read_text(encoding="utf-8"))["recipe_hash"]
        if made != job.recipe.hash():
            raise TagfillError(f"{job.folder} holds a run with other settings; choose another --out.")


def run_all(jobs: Sequence[Job], processes: int | None, progress: Progress) -> Iterator[Outcome]:
    """Outcomes in the order of the jobs, made by as many processes as there are cores unless a number is given."""
    from joblib import Parallel, delayed

    workers = min(processes or os.cpu_count() or 1, max(len(jobs), 1))
    with progress.bar("runs", len(jobs), "runs") as bar:
        made = Parallel(n_jobs=workers, return_as="generator")(delayed(make)(job) for job in jobs)
        for job, outcome in zip(jobs, made, strict=True):
            bar.advance()
            progress.say(f"{job.title}: {outcome.told(job.split)}")
            yield outcome


def make(job: Job) -> Outcome:
    """Make one run and score it, or read how it ended."""
    record = job.folder / OUTCOME
    if record.exists():
        known = Outcome(**json.loads(record.read_text(encoding="utf-8")))
        if known.split == job.split and (job.localise is None or known.localisation is not None):
            return known
    try:
        outcome = train_and_score(job.recipe, job.folder, split=job.split, localise=job.localise)
    except TagfillError as error:
        return Outcome.refused(str(error))
    write_json(record, outcome.to_json())
    return outcome
