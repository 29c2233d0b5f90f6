"""A budget study: what N hours of annotators' time buy as image labels, as points or as boxes.

For each budget, kind and seed, the protocol `budget` draws labels from a fully labeled dataset, the method trains on
them, and is scored on a split with complete labels: mAP-cls for what it finds in images, mAP-loc for whether it finds
it in the right place. This is the experiment of PatchML's tables 1 and 2 and, with a term added to the method for some
kinds (I, SP, SP+patchcluster), of its figure 1c. As in the paper, image labels (I) supervise the pooled logits only.

A study that was interrupted continues where it stopped; more budgets, kinds or seeds train only what is new.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tagfill import figures
from tagfill.data import Locations
from tagfill.dataset import Dataset
from tagfill.deprecation import renamed_keywords
from tagfill.engines import create_engine
from tagfill.errors import ImageError, TagfillError
from tagfill.experiments import pictures
from tagfill.experiments.budget_results import BudgetPlan, BudgetResult, BudgetStudy, annotation_kind
from tagfill.experiments.runs import Overrides, RunJob, cached_once, check_job, jobs_on, recipe_content, run_jobs
from tagfill.images import open_root, thumbnail
from tagfill.io import atomic_write, write_json
from tagfill.progress import NOTEBOOK, Progress
from tagfill.training import build_recipe
from tagfill.training.evaluation import LoadedModel
from tagfill.training.localization import has_extents

RESULTS, PAGE = "budget.json", "budget.md"
FIGURE_SVG, FIGURE_PNG, MAPS = "budget.svg", "budget.png", "maps.png"
_LOG_RATIO = 5  # of the largest to the smallest budget, from which the axis of hours is logarithmic


@renamed_keywords(localise="localize", fixed="overrides")
def budget(
    dataset: Dataset | str | Path,
    plan: BudgetPlan,
    *,
    out: str | Path,
    method: str = "patchml",
    epochs: int = 20,
    features: str | os.PathLike[str] | None = None,
    cache: bool = False,
    localize: str = "minmax",
    overrides: Overrides = (),
    split: str = "test",
    device: str = "auto",
    jobs: int | None = None,
    engine: str = "joblib",
    ray_address: str | None = None,
    progress: Progress = NOTEBOOK,
    **settings: Any,
) -> BudgetStudy:
    """Simulate, train and score every kind of annotation at every budget, and write a table, a figure and class maps.

    Args:
        dataset: a fully labeled dataset, or its folder; with masks, boxes or points unless only image labels are
            studied.
        plan: kinds, budgets, seeds and costs.
        out: folder for the datasets, the runs and the results.
        method: that trains; a kind such as `SP+patchcluster` adds a term to it. With image labels it has no marks to
            learn from: `patchml` gets `w_patch: 0` unless `plan.absent_cells` is set, `patchcluster` gets
            `features: image`.
        epochs: of each run.
        features: a feature cache, or its folder, to train on instead of images.
        cache: without `features`, make a feature cache if only heads train, as the command line does.
        localize: how class maps are scaled for mAP-loc, see `tagfill.evaluate`.
        overrides: settings of all runs by their paths, such as `(("optimizer.lr", 1e-4),)`.
        split: to score.
        device: of the networks: `cpu`, `cuda`, `mps`, or `auto`.
        jobs: number of processes; by default one per core, or one on an accelerator.
        engine: that runs them, see `tagfill.engines`.
        ray_address: of a Ray cluster whose machines can all read the folders; by default Ray stays on this machine.
        progress: receives progress and messages.
        **settings: any other field of a recipe.

    Example:
        >>> plan = BudgetPlan(kinds=("I", "SP"), percents=(5, 10))  # doctest: +SKIP
        >>> study = tagfill.budget("scenes", plan, out="study", features="scenes-features")  # doctest: +SKIP
        >>> study.results[0].hours  # doctest: +SKIP
        0.17
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if data.folder is None:
        raise TagfillError("Several processes open the dataset from its folder; save the dataset before the study.")
    if plan.seeds < 1:
        raise TagfillError(f"The number of seeds is {plan.seeds}; give 1 or more.")
    runner = create_engine(engine, workers=jobs if ray_address else jobs_on(device, jobs), address=ray_address)
    scaling = localize if has_extents(data, split) else None
    folder = Path(out).absolute()
    if cache and features is None:
        methods = list(dict.fromkeys(_method_of(kind, method) for kind in plan.kinds))
        features = cached_once(data, methods, settings, overrides, device=device, progress=progress)
    shared = recipe_content(settings, overrides, epochs=epochs, features=features)

    runs: dict[tuple[float, str], list[RunJob]] = {cell: [] for cell in plan.cells()}
    for (percent, kind), cell_jobs in runs.items():
        for seed in range(plan.seeds):
            end, title = f"{percent:g}-s{seed}", f"{kind} at {percent:g}%, seed {seed}"
            simulated = folder / "data" / f"{annotation_kind(kind)}-{end}"
            own = {
                "dataset": str(simulated),
                "features": None,
                "method": _method_of(kind, method),
                "options": _options_of(kind, method, shared.get("options", {}), plan),
                "seed": seed,
            }
            recipe = build_recipe({**shared, **own}, "the settings of the study", features=features)
            cell_jobs.append(RunJob(title, recipe, folder / "runs" / f"{kind}-{end}", split, scaling, device=device))
            check_job(cell_jobs[-1])
    kept: dict[tuple[float, str], list[dict[str, Any]]] = {cell: [] for cell in runs}
    for (percent, kind), cell_jobs in runs.items():
        for seed, job in enumerate(cell_jobs):
            part = plan.simulate(data, percent, kind, seed, Path(job.recipe.dataset))
            assert part.protocol is not None
            kept[percent, kind].append(part.protocol["kept"])
    outcomes = run_jobs([job for cell_jobs in runs.values() for job in cell_jobs], runner, progress)
    results = [
        BudgetResult.from_outcomes(*cell, kept[cell], [next(outcomes) for _ in cell_jobs])
        for cell, cell_jobs in runs.items()
    ]
    study = BudgetStudy(data.name, split, method, plan, tuple(results))

    largest = plan.percents[-1]
    drawn = {
        result.kind: runs[largest, result.kind][0]
        for result in results
        if result.percent == largest and not result.error
    }
    maps = None
    if scaling and drawn:
        try:
            maps = draw_maps(data, drawn)
        except ImageError as error:  # a study on cached features does not need the images, which may be gone
            progress.say(f"No class maps are drawn. {error}")
    _write_results(study, folder, maps)
    return study


def _method_of(kind: str, method: str) -> str:
    """The method that trains a kind, with the term that the kind adds to it."""
    return method + kind.removeprefix(annotation_kind(kind))


def _options_of(kind: str, method: str, options: Mapping[str, Any], plan: BudgetPlan) -> dict[str, Any]:
    """The options of a kind: those given for its method, and what image labels cannot teach switched off."""
    parts = _method_of(kind, method).split("+")
    elsewhere = {part for other in plan.kinds for part in _method_of(other, method).split("+")} - set(parts)
    found = {name: dict(values) for name, values in options.items() if name not in elsewhere}
    if annotation_kind(kind) == "I":
        if "patchml" in parts and not plan.absent_cells:
            found["patchml"] = {**found.get("patchml", {}), "w_patch": 0.0}
        if "patchcluster" in parts:
            found["patchcluster"] = {"features": "image", **found.get("patchcluster", {})}
    return found


def _write_results(study: BudgetStudy, folder: Path, maps: bytes | None) -> None:
    """Write results, figure, maps and, last because it refers to them, the page."""
    write_json(folder / RESULTS, study.to_json())
    files: dict[str, bytes] = {}
    shown: list[tuple[str, str]] = []
    figure = draw_figure(study)
    if figure is not None:
        files |= {FIGURE_SVG: figures.svg_file(figure), FIGURE_PNG: figures.png(figure)}
        shown.append((FIGURE_SVG, "mAP against hours of annotation; bars are standard deviations over seeds."))
    if maps is not None:
        files[MAPS] = maps
        budget = f"{study.plan.percents[-1]:g}%"
        shown.append((MAPS, f"Class maps of the first seed at {budget}, and the predicted probability of the class."))
    for name, content in {**files, PAGE: study.to_markdown(shown).encode()}.items():
        with atomic_write(folder / name) as file:
            file.write(content)


def draw_figure(study: BudgetStudy) -> Any | None:
    """Draw mAP-cls and mAP-loc against hours of annotation, one line per kind; None if there is no score."""
    scored = [result for result in study.results if result.map_cls]
    if not scored:
        return None
    measures = {"mAP-cls": "map_cls"} | ({"mAP-loc": "map_loc"} if any(r.map_loc for r in scored) else {})
    figure, panels = figures.new_panels(3.9 * len(measures), 3.5, columns=len(measures))
    for panel, (name, measure) in zip(panels, measures.items(), strict=True):
        for position, kind in enumerate(study.plan.kinds):
            points = [(r.hours, getattr(r, measure)) for r in scored if r.kind == kind and getattr(r, measure)]
            panel.errorbar(
                [hours for hours, _ in points],
                [fmean(values) for _, values in points],
                yerr=[stdev(values) if len(values) > 1 else 0.0 for _, values in points],
                color=figures.color(position),
                marker=figures.MARKERS[position % 5],
                markersize=5,
                linewidth=1.6,
                capsize=2.5,
                elinewidth=1,
                label=kind,
            )
        panel.set_title(name, fontsize=11, color=figures.TEXT)
        panel.set_xlabel("hours of annotation")
        panel.set_ylabel(f"{study.split}, percent")
        panel.grid(visible=True)
        _scale_hours(panel, [result.hours for result in scored])
    handles, kinds = panels[0].get_legend_handles_labels()
    figure.legend(handles, kinds, loc="outside upper center", ncols=len(kinds), frameon=False)
    return figure


def _scale_hours(panel: Any, hours: list[float]) -> None:
    """Use a logarithmic axis with plain numbers if the budgets span a wide range."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if max(hours) < _LOG_RATIO * min(hours):
        return
    panel.set_xscale("log")
    ticks: list[float] = []
    for value in sorted(hours):
        if not ticks or value > 1.4 * ticks[-1]:
            ticks.append(value)
    panel.xaxis.set_major_locator(FixedLocator(ticks))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def draw_maps(data: Dataset, jobs: Mapping[str, RunJob], *, split: str = "val") -> bytes | None:
    """Draw the class maps of each kind for the first image of several classes, as PNG.

    Args:
        data: with the truth.
        jobs: a finished run of each kind of annotation.
        split: of the images; the scored split if there is no such split.
    """
    split = split if split in data.splits else next(iter(jobs.values())).split
    examples = pictures.choose_examples(data, split)
    if not examples:
        return None
    index = np.array([image for image, _ in examples])
    predictions = {}
    for kind, job in jobs.items():
        model = LoadedModel.open(job.folder, data, features=job.recipe.final_features, maps=True)
        predictions[kind] = pictures.predict_class_maps(model, split, index)
    root, names, locations = open_root(data.root), data.names(data.split(split)), Locations.read(data, split)
    rows = []
    for position, (image, label) in enumerate(examples):
        photo = thumbnail(root, names[image], pictures.SIDE)
        marks = locations.of(np.array([image]))
        truth = pictures.draw_boxes(photo, marks.box[marks.label == label])
        maps = [pictures.overlay_class_map(photo, values[position, label]) for values, _ in predictions.values()]
        notes = ["", "", *(f"{share[position, label]:.0%}" for _, share in predictions.values())]
        rows.append(pictures.GridRow(data.classes[label], [photo, truth, *maps], notes))
    columns = ["image", "truth", *(f"trained on {kind}" for kind in predictions)]
    return pictures.picture_png(pictures.picture_grid(columns, rows))
