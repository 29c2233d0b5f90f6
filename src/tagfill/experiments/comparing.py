"""Comparing methods on one dataset: same data, same epochs, several seeds, one leaderboard.

Runs are independent and go one process a core, one thread each. Each leaves its outcome in its folder, so a comparison
that was stopped goes on where it stopped, and one that is asked for again only reads. A grid of settings is tried on
the first seed and chosen by validation mAP; the test split chooses nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagfill import methods
from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.experiments import entries, grid
from tagfill.experiments.completing import complete
from tagfill.experiments.entries import FLOOR, FULL, Entry
from tagfill.experiments.leaderboard import Leaderboard, Score
from tagfill.experiments.outcomes import Outcome, train_and_score
from tagfill.files import replacing, write_json
from tagfill.progress import SILENT, Progress
from tagfill.training import Recipe, make_recipe

BOARD, TABLE = "leaderboard.json", "leaderboard.md"


@dataclass(frozen=True)
class Job:
    """One run: everything that another process needs to make it."""

    entry: Entry
    seed: int
    choice: grid.Choice
    dataset: Path
    features: Path | None
    folder: Path
    settings: Mapping[str, Any]
    stage: Mapping[str, Any]
    split: str


def compare(
    dataset: Dataset | str | Path,
    wanted: str | Sequence[Entry],
    *,
    out: str | Path,
    seeds: int = 3,
    epochs: int = 10,
    features: str | Path | None = None,
    choices: Sequence[str] = (),
    fixed: grid.Choice = (),
    split: str = "test",
    jobs: int | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> Leaderboard:
    """Train each method with each seed, and rank them by their mean score on a split.

    Args:
        dataset: the data, or its folder.
        wanted: names of methods joined by commas, see `tagfill.experiments.entries`; `an`, and `full` where the
            complete labels are known, take part in any case, because the gap between them is the yardstick.
        out: folder of the runs and the leaderboard.
        seeds: runs of each method.
        epochs: of each run.
        features: a feature cache to train on instead of images.
        choices: a grid, as in `["optimizer.lr=1e-3,1e-4"]`.
        fixed: settings of all runs by their paths, as in `(("optimizer.lr", 1e-4),)`.
        split: that gives the scores.
        jobs: processes at once; one a core by default.
        progress: told about each run.
        **settings: any other field of a recipe.

    Example:
        >>> board = tagfill.compare("scenes-sp", "ll-r,en+scl", out="comparison")  # doctest: +SKIP
        >>> board.scores[0].name  # doctest: +SKIP
        'full'
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if data.folder is None:
        raise TagfillError(
            "A comparison runs in several processes, which open the dataset by its folder; save it first."
        )
    combinations = grid.parse(choices)
    if len(combinations) > 1 and "val" not in data.splits:
        raise TagfillError(f"A grid is chosen on validation, but {data.name} has no split 'val'.")
    chosen = with_yardsticks(entries.parse(wanted) if isinstance(wanted, str) else list(wanted), data)
    ceiling = None if data.truth is None else complete(data, Path(out) / "complete")
    stage: dict[str, Any] = {"input": "images" if features is None else "cache", "epochs": epochs}
    settings, stage = grid.apply(fixed, settings, stage)

    def job(entry: Entry, seed: int, choice: grid.Choice) -> Job:
        place = ceiling if entry.complete else data.folder
        assert place is not None
        folder = Path(out) / "runs" / _folder(entry, seed, choice)
        given = None if features is None else Path(features).absolute()
        return Job(entry, seed, choice, place.absolute(), given, folder, _settings(entry, settings), stage, split)

    for entry in chosen:
        for choice in grid.fitting(combinations, entry.method):
            check(job(entry, 0, choice))
    first = [job(entry, 0, choice) for entry in chosen for choice in grid.fitting(combinations, entry.method)]
    tried = list(zip(first, _run_all(first, jobs, progress), strict=True))
    best = {entry.name: _best([pair for pair in tried if pair[0].entry == entry]) for entry in chosen}
    rest = [job(entry, seed, best[entry.name][0].choice) for entry in chosen for seed in range(1, seeds)]
    later = list(zip(rest, _run_all(rest, jobs, progress), strict=True))
    scores = [
        Score.of(
            entry.name, [best[entry.name][1], *(o for j, o in later if j.entry == entry)], best[entry.name][0].choice
        )
        for entry in chosen
    ]
    board = Leaderboard.rank(data.name, split, scores)
    Path(out).mkdir(parents=True, exist_ok=True)
    write_json(Path(out) / BOARD, board.to_json())
    with replacing(Path(out) / TABLE) as file:
        file.write(board.to_markdown().encode())
    return board


def with_yardsticks(wanted: list[Entry], data: Dataset) -> list[Entry]:
    """What was asked for, with floor and ceiling; without complete labels there is no ceiling."""
    if data.truth is None and any(entry.complete for entry in wanted):
        raise TagfillError(f"'{FULL}' needs complete labels, but {data.name} names no truth; leave it out.")
    names = {entry.name for entry in wanted}
    ceiling = [Entry(FULL, "bce", complete=True)] if data.truth is not None and FULL not in names else []
    floor = [Entry(FLOOR, FLOOR)] if FLOOR not in names else []
    return [*ceiling, *floor, *wanted]


def _run_all(todo: Sequence[Job], jobs: int | None, progress: Progress) -> Iterator[Outcome]:
    """Outcomes in the order of the jobs, made by as many processes as there are cores."""
    from joblib import Parallel, delayed

    workers = min(jobs or os.cpu_count() or 1, max(len(todo), 1))
    with progress.bar("runs", len(todo), "runs") as bar:
        made = Parallel(n_jobs=workers, return_as="generator")(delayed(make)(job) for job in todo)
        for job, outcome in zip(todo, made, strict=True):
            bar.advance()
            told = outcome.error or f"{job.split} mAP {outcome.score:.2f}"
            progress.say(f"{job.entry.name}, seed {job.seed}{_shown(job.choice)}: {told}")
            yield outcome


def check(job: Job) -> None:
    """Raise for settings that no data could make right, before anything is trained."""
    recipe = recipe_of(job)
    methods.create(recipe.method, recipe.options)


def recipe_of(job: Job) -> Recipe:
    """The recipe of a run."""
    settings, stage = grid.apply(job.choice, job.settings, job.stage)
    return make_recipe(
        {
            **settings,
            "dataset": str(job.dataset),
            "features": None if job.features is None else str(job.features),
            "method": job.entry.method,
            "head_options": {**settings.get("head_options", {}), **job.entry.head_options},
            "seed": job.seed,
            "stages": [{"name": "main", **stage}],
        },
        f"the settings of {job.entry.name}",
    )


def make(job: Job) -> Outcome:
    """Make one run and score it, or read how it ended."""
    record = job.folder / "outcome.json"
    if record.exists():
        return Outcome(**json.loads(record.read_text(encoding="utf-8")))
    try:
        outcome = train_and_score(recipe_of(job), job.folder, split=job.split)
    except TagfillError as error:
        return Outcome.refused(str(error))
    write_json(record, outcome.to_json())
    return outcome


def _settings(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that concern an entry: options of other methods are left out."""
    options = {name: given for name, given in settings.get("options", {}).items() if name in entry.method.split("+")}
    return {**settings, "options": options}


def _best(tried: Sequence[tuple[Job, Outcome]]) -> tuple[Job, Outcome]:
    """The combination with the best validation score; the first where none has one."""
    return max(tried, key=lambda pair: -1.0 if pair[1].validation is None else pair[1].validation)


def _folder(entry: Entry, seed: int, choice: grid.Choice) -> str:
    settings = "".join(f"-{path.split('.')[-1]}={value}" for path, value in choice)
    return f"{entry.name.replace(':', '-')}{settings}-s{seed}"


def _shown(choice: grid.Choice) -> str:
    return "".join(f", {path}={value}" for path, value in choice)
