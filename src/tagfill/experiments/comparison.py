"""Comparing methods on one dataset: the same data, the same epochs, several seeds, one leaderboard.

Runs are independent: one process per core with one thread each, or a Ray cluster. A grid of settings is searched with
the first seed and chosen by validation mAP; the split `test` is never used for model selection. Data without such a
split is scored on `val` or by cross-fitting, see `scored_split.py`.

    ll-r                            a method
    en+scl                          a sum of methods
    ll-r:boost=5                    a method with an option of the head
    full                            complete labels, the ceiling; needs a simulated dataset
    full:boost=5, full:auto         complete labels with an option of the head, or with another method than `bce`
    optimizer.lr=1e-3,1e-4          a grid: two values of a setting
    options.scl.weight=0.1,1        a grid: two values of an option, for the methods that have it
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset
from tagfill.deprecation import renamed_keywords
from tagfill.engines import create_engine
from tagfill.errors import TagfillError
from tagfill.experiments.leaderboard import Leaderboard, Score
from tagfill.experiments.report.build import write_report
from tagfill.experiments.report.report_data import ReportData, TrainedMethod
from tagfill.experiments.runs import (
    FLOOR,
    FULL,
    Overrides,
    RunJob,
    cached_once,
    check_job,
    jobs_on,
    recipe_content,
    run_jobs,
    save_complete_dataset,
)
from tagfill.experiments.scored_split import FOLDS, choose_split, save_fold
from tagfill.io import atomic_write, write_json
from tagfill.methods import create as create_method
from tagfill.options import parse_assignment, parse_value, parse_values
from tagfill.progress import NOTEBOOK, Progress
from tagfill.training import Run, build_recipe
from tagfill.training.auto import AUTO, BOOST
from tagfill.training.recipe import with_overrides

BOARD, TABLE, REPORT = "leaderboard.json", "leaderboard.md", "report.html"
_GRID_EXAMPLE = "--grid optimizer.lr=1e-3,1e-4"
AUTO_INFERENCE = {"boost": int(BOOST), "boost_train": False}  # of the head of `auto`, unless a user says otherwise


@dataclass(frozen=True)
class MethodSpec:
    """A method to compare.

    Attributes:
        name: in the leaderboard.
        method: that trains.
        head_options: options of its head.
        complete: train on complete labels.
        options: options by method name, instead of those given for all methods.
        dataset: folder with other labels of the same images to train on, such as points.
        note: what is special about it, for the leaderboard.
    """

    name: str
    method: str
    head_options: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    dataset: Path | None = None
    note: str = ""


@renamed_keywords(wanted="methods", choices="grid", fixed="overrides")
def compare(
    dataset: Dataset | str | Path,
    methods: str | Sequence[MethodSpec],
    *,
    out: str | Path,
    seeds: int = 3,
    epochs: int = 10,
    features: str | os.PathLike[str] | None = None,
    cache: bool = False,
    grid: Sequence[str] = (),
    overrides: Overrides = (),
    split: str | None = None,
    device: str = "auto",
    jobs: int | None = None,
    engine: str = "joblib",
    ray_address: str | None = None,
    report: bool = True,
    title: str | None = None,
    progress: Progress = NOTEBOOK,
    **settings: Any,
) -> Leaderboard:
    """Train each method with several seeds, and rank the methods by their mean score on a split.

    Args:
        dataset: the dataset, or its folder.
        methods: names separated by commas, such as `"ll-r,en+scl"`. `an` always takes part, and so does `full` if the
            complete labels are known, because the gap between them is the scale. An entry with options of the head,
            such as `ll-r:boost=5`, and `auto` bring `an` and `full` with the same inference.
        out: folder for the runs and the leaderboard.
        seeds: number of runs per method.
        epochs: of each run.
        features: a feature cache, or its folder, to train on instead of images.
        cache: without `features`, make a feature cache if only heads train, as the command line does.
        grid: values to choose from, such as `["optimizer.lr=1e-3,1e-4"]`.
        overrides: settings of all runs by their paths, such as `(("optimizer.lr", 1e-4),)`.
        split: to score; by default `test`, or `val`, or training images that each run holds out, whichever is the first
            that can be scored; see `tagfill.experiments.scored_split`.
        device: of the networks: `cpu`, `cuda`, `mps`, or `auto`.
        jobs: number of processes; by default one per core, or one on an accelerator.
        engine: that runs them, see `tagfill.engines`.
        ray_address: of a Ray cluster whose machines can all read the folders; by default Ray stays on this machine.
        report: also write `report.html` and `report.md`, which predicts the training and scored images once more.
        title: of the report.
        progress: receives progress and messages.
        **settings: any other field of a recipe.

    Raises:
        TagfillError: if no method has a score, with the reason of each.

    Example:
        >>> board = tagfill.compare("scenes-sp", "ll-r,en+scl", out="comparison")  # doctest: +SKIP
        >>> board.scores[0].name  # doctest: +SKIP
        'full'
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if data.folder is None:
        raise TagfillError("Several processes open the dataset from its folder; save the dataset before comparing.")
    runner = create_engine(engine, workers=jobs if ray_address else jobs_on(device, jobs), address=ray_address)
    combinations = parse_grid(grid)
    if len(combinations) > 1 and "val" not in data.splits:
        raise TagfillError(f"A grid is chosen on validation images, but {data.name} has no split 'val'.")
    specs = add_floor_and_ceiling(parse_methods(methods) if isinstance(methods, str) else list(methods), data)
    scored = choose_split(data, split)
    if scored.note:
        progress.say(scored.note)
    folder = Path(out).absolute()
    if cache and features is None:
        names = [spec.method for spec in specs]
        features = cached_once(data, names, settings, overrides, device=device, progress=progress)
    shared = recipe_content(settings, overrides, epochs=epochs, features=features)

    @functools.cache
    def open_data(place: Path | None, complete: bool, seed: int) -> Dataset:
        """The images and labels of a run: those given or complete ones, all of them or without the run's fold."""
        chosen = data if place is None else Dataset.open(place)
        name = "" if place is None else f"-{place.name}"
        if scored.cross_fitted:
            chosen = save_fold(chosen, seed, folder / "folds" / f"{seed % FOLDS}{name}")
            name = f"-{seed % FOLDS}{name}"
        return Dataset.open(save_complete_dataset(chosen, folder / f"complete{name}")) if complete else chosen

    def make_job(spec: MethodSpec, seed: int, choice: Overrides) -> RunJob:
        names = spec.method.split("+")
        options = {name: given for name, given in shared.get("options", {}).items() if name in names}
        content = with_overrides({**shared, "options": {**options, **spec.options}}, choice)
        place = open_data(spec.dataset, spec.complete, seed).folder
        assert place is not None
        content |= {
            "dataset": str(place.absolute()),
            "features": None,
            "method": spec.method,
            "head_options": {**content.get("head_options", {}), **spec.head_options},
            "seed": seed,
        }
        recipe = build_recipe(content, f"the settings of {spec.name}", features=features)
        suffix = (
            f"-{scored.name}" if scored.cross_fitted else ""
        )  # runs on all training images have folders of their own
        chosen = "".join(f"-{path.split('.')[-1]}={value}" for path, value in choice)
        run_folder = folder / "runs" / f"{spec.name.replace(':', '-')}{chosen}-s{seed}{suffix}"
        job_title = f"{spec.name}, seed {seed}" + "".join(f", {path}={value}" for path, value in choice)
        return RunJob(job_title, recipe, run_folder, scored.name, recover=True, device=device)

    # The first seed tries the whole grid; the other seeds train with the settings that were best on validation.
    tried = [
        (spec, choice, make_job(spec, 0, choice))
        for spec in specs
        for choice in relevant_choices(combinations, spec.method)
    ]
    for *_, job in tried:
        check_job(job)
    with progress.bar("runs", len(tried) + len(specs) * (seeds - 1), "runs") as bar:
        results = list(zip(tried, run_jobs([job for *_, job in tried], runner, progress, bar=bar), strict=True))
        best = {}
        for spec in specs:
            own = [(choice, job, outcome) for (other, choice, job), outcome in results if other == spec]
            best[spec.name] = max(
                own, key=lambda result: -1.0 if result[2].validation is None else result[2].validation
            )
        others = [(spec, make_job(spec, seed, best[spec.name][0])) for spec in specs for seed in range(1, seeds)]
        more = list(zip(others, run_jobs([job for _, job in others], runner, progress, bar=bar), strict=True))

    trained = []
    for spec in specs:
        choice, job, outcome = best[spec.name]
        pairs = [(job, outcome), *((job, outcome) for (other, job), outcome in more if other == spec)]
        cost = annotation_seconds(data, spec)
        score = Score.from_outcomes(
            spec.name, [outcome for _, outcome in pairs], choice, cost, spec.note, complete=spec.complete
        )
        trained.append(TrainedMethod(spec.name, tuple(Run(job.folder) for job, _ in pairs), score, spec.complete))
    if all(math.isnan(method.score.mean) for method in trained):
        raise no_score(trained)
    shown = open_data(None, False, 0)
    truth = None if data.truth is None else open_data(None, True, 0)
    compared = ReportData.rank(shown, truth, scored.name, trained, scored.note)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / BOARD, compared.board.to_json())
    with atomic_write(folder / TABLE) as file:
        file.write(compared.board.to_markdown().encode())
    if report:
        write_report(compared, folder / REPORT, title=title, progress=progress)
    return compared.board


def no_score(methods: Sequence[TrainedMethod]) -> TagfillError:
    """The error of a comparison in which no method has a score, with the reasons."""
    reasons: dict[str, list[str]] = {}
    for method in methods:
        reasons.setdefault(method.score.error or "its score is unknown", []).append(method.name)
    texts = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return TagfillError(f"No method has a score. {' '.join(texts)}")


def parse_methods(text: str) -> list[MethodSpec]:
    """Parse methods separated by commas; repeated ones count once.

    Raises:
        TagfillError: for a method that does not exist, or an option without a value.

    >>> [(spec.method, spec.head_options) for spec in parse_methods("an,ll-r:boost=5,full:auto")]
    [('an', {}), ('ll-r', {'boost': 5}), ('auto', {})]
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise TagfillError("There is nothing to compare; name methods as in --methods an,en+scl,role.")
    specs = []
    for name in dict.fromkeys(names):
        method, *texts = name.split(":")
        complete = method == FULL
        if complete:
            method = texts.pop(0) if texts and "=" not in texts[0] else "bce"
        if method != AUTO:
            create_method(method)  # raises if there is no such method
        pairs = [parse_assignment(each, example="ll-r:boost=5") for each in texts]
        options = {key: parse_value(value) for key, value in pairs}
        specs.append(MethodSpec(name, method, options, complete=complete))
    return specs


def parse_grid(texts: Sequence[str]) -> list[Overrides]:
    """All combinations of a grid's values; one empty combination for an empty grid.

    >>> parse_grid(["optimizer.lr=1e-3,1e-4", "batch_size=16"])
    [(('optimizer.lr', 0.001), ('batch_size', 16)), (('optimizer.lr', 0.0001), ('batch_size', 16))]
    """
    axes = []
    for text in texts:
        path, values = parse_assignment(text, _GRID_EXAMPLE)
        axes.append([(path, value) for value in parse_values(values, _GRID_EXAMPLE)])
    return list(product(*axes))


def relevant_choices(combinations: Sequence[Overrides], method: str) -> list[Overrides]:
    """The combinations that differ for a method: options of other methods are dropped.

    >>> relevant_choices(parse_grid(["options.scl.weight=0.1,1"]), "an")
    [()]
    """

    def concerns(path: str) -> bool:
        parts = path.split(".")
        return parts[0] != "options" or parts[1] in method.split("+")

    found: list[Overrides] = []
    for choice in combinations:
        relevant = tuple((path, value) for path, value in choice if concerns(path))
        if relevant not in found:
            found.append(relevant)
    return found


def add_floor_and_ceiling(specs: list[MethodSpec], data: Dataset) -> list[MethodSpec]:
    """Add `an`, and `full` if complete labels are known, unless they are there.

    Entries that change inference are compared with `an` and `full` that change it too: with the same options of the
    head, and for the ensemble `auto` with `auto` on complete labels and `an` with its boost.
    """
    if data.truth is None and any(spec.complete for spec in specs):
        raise TagfillError(f"'{FULL}' needs complete labels, but {data.name} names no truth; leave it out.")
    added = {FULL: MethodSpec(FULL, "bce", complete=True), FLOOR: MethodSpec(FLOOR, FLOOR)}
    for spec in specs:
        if spec.method == AUTO:
            added[f"{FULL}:{AUTO}"] = MethodSpec(f"{FULL}:{AUTO}", AUTO, spec.head_options, complete=True)
        options = spec.head_options or (AUTO_INFERENCE if spec.method == AUTO else {})
        suffix = "".join(f":{name}={_text(value)}" for name, value in options.items())
        if options and spec.method != AUTO:
            added[FULL + suffix] = MethodSpec(FULL + suffix, "bce", options, complete=True)
        if options:
            added[FLOOR + suffix] = MethodSpec(FLOOR + suffix, FLOOR, options)
    given = {(spec.method, spec.complete, tuple(spec.head_options.items())) for spec in specs if spec.dataset is None}
    return [
        *(
            spec
            for spec in added.values()
            if (spec.method, spec.complete, tuple(spec.head_options.items())) not in given
            and (data.truth is not None or not spec.complete)
        ),
        *specs,
    ]


def _text(value: Any) -> str:
    """The value of an option as a user writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def annotation_seconds(data: Dataset, spec: MethodSpec) -> float | None:
    """What the training labels of a method cost annotators; None unless a protocol simulated them."""
    part = data if spec.dataset is None else Dataset.open(spec.dataset)
    if part.protocol is None or "kept" not in part.protocol:
        return None
    if spec.complete:
        return float(len(data.split("train")) * len(data.classes))  # one second per image and class
    return float(part.protocol["kept"]["seconds"])
