"""A budget study: what N hours of annotators' time buy, as image labels, as points or as boxes.

For each budget, kind and seed, labels are drawn by the protocol `budget` from a fully labelled dataset, the method
trains on them, and is scored on a split with complete labels: mAP-cls for what it finds in images, mAP-loc for whether
it finds it in the right place. This is the experiment of PatchML's tables 1 and 2.

A study that was stopped goes on where it stopped; more budgets, kinds or seeds train only what is new.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tagfill.annotations import Dataset
from tagfill.engines import create_engine
from tagfill.errors import ImageError, TagfillError
from tagfill.experiments import grid
from tagfill.experiments.budgets import figure, maps
from tagfill.experiments.budgets.plan import Plan
from tagfill.experiments.budgets.results import Finding, Study
from tagfill.experiments.running import Job, check, run_all
from tagfill.files import replacing, write_json
from tagfill.progress import SILENT, Progress
from tagfill.training import Recipe, make_recipe
from tagfill.training.localising import has_extents

RESULTS, PAGE = "budget.json", "budget.md"
FIGURE, FIGURE_PNG, MAPS = "budget.svg", "budget.png", "maps.png"


def budget(
    dataset: Dataset | str | Path,
    plan: Plan,
    *,
    out: str | Path,
    method: str = "patchml",
    epochs: int = 20,
    features: str | os.PathLike[str] | None = None,
    localise: str = "minmax",
    fixed: grid.Choice = (),
    split: str = "test",
    jobs: int | None = None,
    engine: str = "joblib",
    ray_address: str | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> Study:
    """Simulate, train and score every kind at every budget, and write table, figure and maps.

    Args:
        dataset: fully labelled, with masks, boxes or points unless image labels alone are studied; or its folder.
        plan: kinds, budgets, seeds and costs.
        out: folder of the datasets, the runs and the results.
        method: that trains, the same for all kinds; image labels have no marks to learn from.
        epochs: of each run.
        features: a feature cache, or its folder, to train on instead of images.
        localise: how class maps are scaled for mAP-loc, see `tagfill.evaluate`.
        fixed: settings of all runs by their paths, as in `(("optimizer.lr", 1e-4),)`.
        split: that gives the scores.
        jobs: processes at once; one a core by default.
        engine: that runs them, see `tagfill.engines`.
        ray_address: of a Ray cluster, whose machines all find the folders; by default Ray stays on this machine.
        progress: told about each run.
        **settings: any other field of a recipe.

    Example:
        >>> plan = Plan(kinds=("I", "SP"), percents=(5, 10))  # doctest: +SKIP
        >>> study = tagfill.budget("scenes", plan, out="study", features="scenes-features")  # doctest: +SKIP
        >>> study.findings[0].hours  # doctest: +SKIP
        0.17
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if data.folder is None:
        raise TagfillError("A study runs in several processes, which open datasets by their folders; save it first.")
    if plan.seeds < 1:
        raise TagfillError(f"The number of seeds is {plan.seeds}; give 1 or more.")
    runner = create_engine(engine, workers=jobs, address=ray_address)
    scored = localise if has_extents(data, split) else None
    folder = Path(out).absolute()
    stage: dict[str, Any] = {"input": "images" if features is None else "cache", "epochs": epochs}
    settings, stage = grid.apply(fixed, settings, stage)

    def recipe(place: Path, seed: int) -> Recipe:
        content = {"dataset": str(place), "method": method, "seed": seed, "stages": [{"name": "main", **stage}]}
        cache = None if features is None else str(Path(features).absolute())
        return make_recipe({**settings, **content, "features": cache}, "the settings of the study")

    runs: dict[tuple[float, str], list[Job]] = {cell: [] for cell in plan.cells()}
    for (percent, kind), jobs_of_cell in runs.items():
        for seed in range(plan.seeds):
            name = f"{kind}-{percent:g}-s{seed}"
            title = f"{kind} at {percent:g} %, seed {seed}"
            jobs_of_cell.append(Job(title, recipe(folder / "data" / name, seed), folder / "runs" / name, split, scored))
            check(jobs_of_cell[-1])
    kept = {
        (percent, kind): [
            _kept(plan.simulate(data, percent, kind, seed, Path(job.recipe.dataset)))
            for seed, job in enumerate(jobs_of_cell)
        ]
        for (percent, kind), jobs_of_cell in runs.items()
    }
    ended = run_all([job for jobs_of_cell in runs.values() for job in jobs_of_cell], runner, progress)
    findings = [Finding.of(*cell, kept[cell], [next(ended) for _ in runs[cell]]) for cell in plan.cells()]
    study = Study(data.name, split, method, plan, tuple(findings))
    shown = {
        kind: runs[plan.percents[-1], kind][0]
        for kind in plan.kinds
        if not next(found for found in findings if (found.percent, found.kind) == (plan.percents[-1], kind)).error
    }
    _write(study, folder, _picture(data, shown, progress) if scored and shown else None)
    return study


def _picture(data: Dataset, shown: Mapping[str, Job], progress: Progress) -> bytes | None:
    """The maps; none where a study on cached features has lost its images, which cost it nothing but this picture."""
    try:
        return maps.draw(data, shown)
    except ImageError as error:
        progress.say(f"No class maps are drawn. {error}")
        return None


def _kept(part: Dataset) -> dict[str, Any]:
    """What the protocol says it kept."""
    assert part.protocol is not None
    return dict(part.protocol["kept"])


def _write(study: Study, folder: Path, picture: bytes | None) -> None:
    """Results, page, figure and maps; the page last, since it shows the others."""
    write_json(folder / RESULTS, study.to_json())
    drawn = figure.draw(study)
    pictures = [(FIGURE, "mAP against hours of annotation; bars are deviations over the seeds.")] if drawn else []
    files = {} if drawn is None else {FIGURE: drawn.svg, FIGURE_PNG: drawn.png}
    if picture is not None:
        files[MAPS] = picture
        largest = f"{study.plan.percents[-1]:g} %"
        pictures.append(
            (MAPS, f"Class maps of the first seed at {largest}, and the probability that it gives the class.")
        )
    for name, content in {**files, PAGE: study.to_markdown(pictures).encode()}.items():
        with replacing(folder / name) as file:
            file.write(content)
