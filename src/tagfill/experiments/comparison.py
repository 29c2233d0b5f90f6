"""A small grid of settings, tried on the first seed and chosen on validation.

optimizer.lr=1e-3,1e-4        two values of a setting of all stages
options.scl.weight=0.1,1      two values of an option of a method that has it


Comparing methods on one dataset: same data, same epochs, several seeds, one leaderboard.

Runs are independent and go one process a core, one thread each, or over a Ray cluster. A grid of settings is tried on
the first seed and chosen by validation mAP; the test split chooses nothing.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset
from tagfill.engines import create_engine
from tagfill.errors import TagfillError
from tagfill.experiments import runs
from tagfill.experiments.leaderboard import Leaderboard, Score
from tagfill.experiments.report.contents import write_report
from tagfill.experiments.report.material import Entrant, Material
from tagfill.experiments.runs import FLOOR, FULL, Entry, Job, Outcome, check_jobs, complete_labels, run_all
from tagfill.io import atomic_write, write_json
from tagfill.options import parse_assignment, parse_values
from tagfill.progress import SILENT, Progress
from tagfill.training import Run, make_recipe

Choice = tuple[tuple[str, Any], ...]


def parse_grid(texts: Sequence[str]) -> list[Choice]:
    """All combinations; one empty choice for an empty grid.

    >>> parse(["optimizer.lr=1e-3,1e-4", "batch_size=16"])
    [(('optimizer.lr', 0.001), ('batch_size', 16)), (('optimizer.lr', 0.0001), ('batch_size', 16))]
    """
    example = "--grid optimizer.lr=1e-3,1e-4"
    pairs = (parse_assignment(text, example) for text in texts)
    return list(product(*([(path, value) for value in parse_values(values, example)] for path, values in pairs)))


def fitting_choices(choices: Sequence[Choice], method: str) -> list[Choice]:
    """The combinations that differ for a method: options of methods that it does not name are dropped.

    >>> fitting(parse(["options.scl.weight=0.1,1"]), "an")
    [()]
    """
    names = method.split("+")
    kept = [tuple((path, value) for path, value in choice if _concerns(path, names)) for choice in choices]
    return list(dict.fromkeys(kept))


def apply_choice(
    choice: Choice, settings: Mapping[str, Any], stage: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a run and of its stage with a choice put in.

    >>> apply((("optimizer.lr", 0.1), ("batch_size", 8)), {"seed": 1}, {"epochs": 2})
    ({'seed': 1, 'batch_size': 8}, {'epochs': 2, 'optimizer': {'lr': 0.1}})
    """
    from tagfill.training.recipe import override

    content = copy.deepcopy({**settings, "stages": [dict(stage)]})
    for path, value in choice:
        override(content, path, value)
    (inner,) = content.pop("stages")
    return content, inner


def _concerns(path: str, names: Sequence[str]) -> bool:
    parts = path.split(".")
    return parts[0] != "options" or parts[1] in names


BOARD, TABLE, REPORT = "leaderboard.json", "leaderboard.md", "report.html"


@dataclass(frozen=True)
class Trial:
    """A run of an entry with a choice of settings."""

    entry: Entry
    choice: Choice
    job: Job


def compare(
    dataset: Dataset | str | Path,
    wanted: str | Sequence[Entry],
    *,
    out: str | Path,
    seeds: int = 3,
    epochs: int = 10,
    features: str | os.PathLike[str] | None = None,
    choices: Sequence[str] = (),
    fixed: Choice = (),
    split: str = "test",
    jobs: int | None = None,
    engine: str = "joblib",
    ray_address: str | None = None,
    report: bool = True,
    title: str | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> Leaderboard:
    """Train each method with each seed, and rank them by their mean score on a split.

    Args:
        dataset: the data, or its folder.
        wanted: names of methods joined by commas, see `tagfill.experiments.runs`; `an`, and `full` where the
            complete labels are known, take part in any case, because the gap between them is the yardstick.
        out: folder of the runs and the leaderboard.
        seeds: runs of each method.
        epochs: of each run.
        features: a feature cache, or its folder, to train on instead of images.
        choices: a grid, as in `["optimizer.lr=1e-3,1e-4"]`.
        fixed: settings of all runs by their paths, as in `(("optimizer.lr", 1e-4),)`.
        split: that gives the scores.
        jobs: processes at once; one a core by default.
        engine: that runs them, see `tagfill.engines`.
        ray_address: of a Ray cluster, whose machines all find the folders; by default Ray stays on this machine.
        report: also write `report.html` and `report.md`, which takes another look at the training and scored images.
        title: of the report.
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
    runner = create_engine(engine, workers=jobs, address=ray_address)
    combinations = parse_grid(choices)
    if len(combinations) > 1 and "val" not in data.splits:
        raise TagfillError(f"A grid is chosen on validation, but {data.name} has no split 'val'.")
    chosen = with_yardsticks(runs.parse_entries(wanted) if isinstance(wanted, str) else list(wanted), data)
    ceiling = None if data.truth is None else complete_labels(data, Path(out).absolute() / "complete")
    stage: dict[str, Any] = {"input": "images" if features is None else "cache", "epochs": epochs}
    settings, stage = apply_choice(fixed, settings, stage)

    def trial(entry: Entry, seed: int, choice: Choice) -> Trial:
        place = ceiling if entry.complete else entry.dataset or data.folder
        assert place is not None
        chosen_settings, chosen_stage = apply_choice(choice, _settings(entry, settings), stage)
        recipe = make_recipe(
            {
                **chosen_settings,
                "dataset": str(place.absolute()),
                "features": None if features is None else str(Path(features).absolute()),
                "method": entry.method,
                "head_options": {**chosen_settings.get("head_options", {}), **entry.head_options},
                "seed": seed,
                "stages": [{"name": "main", **chosen_stage}],
            },
            f"the settings of {entry.name}",
        )
        folder = Path(out).absolute() / "runs" / _folder(entry, seed, choice)
        title = f"{entry.name}, seed {seed}{_shown(choice)}"
        return Trial(entry, choice, Job(title, recipe, folder, split, recover=True))

    def outcomes(trials: Sequence[Trial]) -> list[tuple[Trial, Outcome]]:
        return list(zip(trials, run_all([trial.job for trial in trials], runner, progress), strict=True))

    first = [trial(entry, 0, choice) for entry in chosen for choice in fitting_choices(combinations, entry.method)]
    for one in first:
        check_jobs(one.job)
    tried = outcomes(first)
    best = {entry.name: _best([pair for pair in tried if pair[0].entry == entry]) for entry in chosen}
    later = outcomes([trial(entry, seed, best[entry.name][0].choice) for entry in chosen for seed in range(1, seeds)])
    scores = [
        Score.of(
            entry.name,
            [best[entry.name][1], *(outcome for one, outcome in later if one.entry == entry)],
            best[entry.name][0].choice,
            annotation_seconds(data, entry),
            entry.note,
        )
        for entry in chosen
    ]
    made = {entry.name: [best[entry.name][0], *(one for one, _ in later if one.entry == entry)] for entry in chosen}
    entrants = [
        Entrant(entry.name, tuple(Run(one.job.folder) for one in made[entry.name]), score, entry.complete)
        for entry, score in zip(chosen, scores, strict=True)
    ]
    material = Material.of(data, None if ceiling is None else Dataset.open(ceiling), split, entrants)
    Path(out).mkdir(parents=True, exist_ok=True)
    write_json(Path(out) / BOARD, material.board.to_json())
    with atomic_write(Path(out) / TABLE) as file:
        file.write(material.board.to_markdown().encode())
    if report:
        write_report(material, Path(out) / REPORT, title=title, progress=progress)
    return material.board


def annotation_seconds(data: Dataset, entry: Entry) -> float | None:
    """What an entry's training labels cost annotators; None unless a protocol simulated them."""
    part = data if entry.dataset is None else Dataset.open(entry.dataset)
    if part.protocol is None or "kept" not in part.protocol:
        return None
    if entry.complete:
        return float(len(data.split("train")) * len(data.classes))  # every label at image level, one second each
    return float(part.protocol["kept"]["seconds"])


def with_yardsticks(wanted: list[Entry], data: Dataset) -> list[Entry]:
    """What was asked for, with floor and ceiling; without complete labels there is no ceiling."""
    if data.truth is None and any(entry.complete for entry in wanted):
        raise TagfillError(f"'{FULL}' needs complete labels, but {data.name} names no truth; leave it out.")
    names = {entry.name for entry in wanted}
    ceiling = [Entry(FULL, "bce", complete=True)] if data.truth is not None and FULL not in names else []
    floor = [Entry(FLOOR, FLOOR)] if FLOOR not in names else []
    return [*ceiling, *floor, *wanted]


def _settings(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that concern an entry: options of other methods are left out."""
    options = {name: given for name, given in settings.get("options", {}).items() if name in entry.method.split("+")}
    return {**settings, "options": {**options, **entry.options}}


def _best(tried: Sequence[tuple[Trial, Outcome]]) -> tuple[Trial, Outcome]:
    """The combination with the best validation score; the first where none has one."""
    return max(tried, key=lambda pair: -1.0 if pair[1].validation is None else pair[1].validation)


def _folder(entry: Entry, seed: int, choice: Choice) -> str:
    settings = "".join(f"-{path.split('.')[-1]}={value}" for path, value in choice)
    return f"{entry.name.replace(':', '-')}{settings}-s{seed}"


def _shown(choice: Choice) -> str:
    return "".join(f", {path}={value}" for path, value in choice)
