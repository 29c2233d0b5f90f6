"""The figure of a budget study: mAP-cls and mAP-loc against hours of annotation, a line a kind.

The maps of a budget study: image, truth, and what models of each kind of annotation look at.

A budget study: what N hours of annotators' time buy, as image labels, as points or as boxes.

For each budget, kind and seed, labels are drawn by the protocol `budget` from a fully labelled dataset, the method
trains on them, and is scored on a split with complete labels: mAP-cls for what it finds in images, mAP-loc for whether
it finds it in the right place. This is the experiment of PatchML's tables 1 and 2.

A study that was stopped goes on where it stopped; more budgets, kinds or seeds train only what is new.

Budget studies: which kind of annotation is worth its time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tagfill.data import Locations
from tagfill.dataset import Dataset
from tagfill.engines import create_engine
from tagfill.errors import ImageError, TagfillError
from tagfill.experiments import comparison, figures, pictures
from tagfill.experiments.budget_results import BudgetPlan, BudgetStudy, Finding
from tagfill.experiments.pictures import class_maps
from tagfill.experiments.runs import Job, check_jobs, run_all
from tagfill.images import open_root, thumbnail
from tagfill.io import atomic_write, write_json
from tagfill.progress import SILENT, Progress
from tagfill.training import Recipe, make_recipe
from tagfill.training.evaluation import LoadedModel, has_extents

MARKERS = "osD^v"
_WIDE = 5  # from this ratio of the largest to the smallest budget on, hours are on a logarithmic axis


@dataclass(frozen=True)
class Drawn:
    """The same figure as SVG and as PNG."""

    svg: bytes
    png: bytes


def draw_figure(study: BudgetStudy) -> Drawn | None:
    """The figure; none if no kind has a score."""
    scored = [finding for finding in study.findings if finding.classified]
    if not scored:
        return None
    panels = {"mAP-cls": "classified"} | ({"mAP-loc": "localised"} if any(f.localised for f in scored) else {})
    figure, axes = figures.new_panels(3.9 * len(panels), 3.5, columns=len(panels))
    for panel, (name, measure) in zip(axes, panels.items(), strict=True):
        for position, kind in enumerate(study.plan.kinds):
            _line(panel, [finding for finding in scored if finding.kind == kind], measure, position, kind)
        panel.set_title(name, fontsize=11, color=figures.TEXT)
        panel.set_xlabel("hours of annotation")
        panel.set_ylabel(f"{study.split}, percent")
        panel.grid(visible=True)
        _hours(panel, [finding.hours for finding in scored])
    handles, kinds = axes[0].get_legend_handles_labels()
    figure.legend(handles, kinds, loc="outside upper center", ncols=len(kinds), frameon=False)
    return Drawn(figures.svg_file(figure), figures.png(figure))


def _line(panel: Any, findings: list[Finding], measure: str, position: int, kind: str) -> None:
    points = [(finding.hours, getattr(finding, measure)) for finding in findings if getattr(finding, measure)]
    panel.errorbar(
        [hours for hours, _ in points],
        [fmean(values) for _, values in points],
        yerr=[stdev(values) if len(values) > 1 else 0.0 for _, values in points],
        color=figures.color(position),
        marker=MARKERS[position % len(MARKERS)],
        markersize=5,
        linewidth=1.6,
        capsize=2.5,
        elinewidth=1,
        label=kind,
    )


def _hours(panel: Any, hours: list[float]) -> None:
    """An axis on which doubled budgets are equally far apart, labelled in plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if max(hours) < _WIDE * min(hours):
        return
    panel.set_xscale("log")
    ticks: list[float] = []
    for value in sorted(hours):
        if not ticks or value > 1.4 * ticks[-1]:
            ticks.append(value)
    panel.xaxis.set_major_locator(FixedLocator(ticks))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def draw_maps(data: Dataset, jobs: Mapping[str, Job], *, split: str = "val") -> bytes | None:
    """The first images of a split on which there is something to see, as PNG.

    Examples are not chosen by how good the maps are: it is the first image of each class, in the order of the split.

    Args:
        data: with the truth.
        jobs: a finished run of each kind of annotation.
        split: of the images; the test split if there is no such split.
    """
    split = split if split in data.splits else next(iter(jobs.values())).split
    places = Locations.read(data, split)
    chosen = pictures.example_pairs(data, split)
    if not chosen:
        return None
    index = np.array([image for image, _ in chosen])
    found = {kind: class_maps(_opened(job, data), split, index) for kind, job in jobs.items()}
    root, names = open_root(data.root), data.names(data.split(split))
    rows = []
    for position, (image, label) in enumerate(chosen):
        shown = thumbnail(root, names[image], pictures.SIDE)
        marks = places.of(np.array([image]))
        truth = pictures.outlined(shown, marks.box[marks.label == label])
        maps = [pictures.overlay_class_map(shown, values[position, label]) for values, _ in found.values()]
        notes = ["", "", *(f"{share[position, label]:.0%}" for _, share in found.values())]
        rows.append(pictures.Row(data.classes[label], [shown, truth, *maps], notes))
    return pictures.picture_png(
        pictures.picture_grid(["image", "truth", *(f"trained on {kind}" for kind in found)], rows)
    )


def _opened(job: Job, data: Dataset) -> LoadedModel:
    return LoadedModel.open(job.folder, data, features=job.recipe.final_features, maps=True)


RESULTS, PAGE = "budget.json", "budget.md"
FIGURE, FIGURE_PNG, MAPS = "budget.svg", "budget.png", "maps.png"


def budget(
    dataset: Dataset | str | Path,
    plan: BudgetPlan,
    *,
    out: str | Path,
    method: str = "patchml",
    epochs: int = 20,
    features: str | os.PathLike[str] | None = None,
    localise: str = "minmax",
    fixed: comparison.Choice = (),
    split: str = "test",
    jobs: int | None = None,
    engine: str = "joblib",
    ray_address: str | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> BudgetStudy:
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
    settings, stage = comparison.apply_choice(fixed, settings, stage)

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
            check_jobs(jobs_of_cell[-1])
    kept = {
        (percent, kind): [
            _kept(plan.simulate(data, percent, kind, seed, Path(job.recipe.dataset)))
            for seed, job in enumerate(jobs_of_cell)
        ]
        for (percent, kind), jobs_of_cell in runs.items()
    }
    ended = run_all([job for jobs_of_cell in runs.values() for job in jobs_of_cell], runner, progress)
    findings = [Finding.of(*cell, kept[cell], [next(ended) for _ in runs[cell]]) for cell in plan.cells()]
    study = BudgetStudy(data.name, split, method, plan, tuple(findings))
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
        return draw_maps(data, shown)
    except ImageError as error:
        progress.say(f"No class maps are drawn. {error}")
        return None


def _kept(part: Dataset) -> dict[str, Any]:
    """What the protocol says it kept."""
    assert part.protocol is not None
    return dict(part.protocol["kept"])


def _write(study: BudgetStudy, folder: Path, picture: bytes | None) -> None:
    """Results, page, figure and maps; the page last, since it shows the others."""
    write_json(folder / RESULTS, study.to_json())
    drawn = draw_figure(study)
    pictures = [(FIGURE, "mAP against hours of annotation; bars are deviations over the seeds.")] if drawn else []
    files = {} if drawn is None else {FIGURE: drawn.svg, FIGURE_PNG: drawn.png}
    if picture is not None:
        files[MAPS] = picture
        largest = f"{study.plan.percents[-1]:g} %"
        pictures.append(
            (MAPS, f"Class maps of the first seed at {largest}, and the probability that it gives the class.")
        )
    for name, content in {**files, PAGE: study.to_markdown(pictures).encode()}.items():
        with atomic_write(folder / name) as file:
            file.write(content)
