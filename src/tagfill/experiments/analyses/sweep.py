"""The effect of a setting: validation mAP over its values, with seeds, and over images with few or many labels.

The recipe of one run is trained again with each combination of values:

    optimizer.lr=1e-3,1e-4          a setting by its path
    en.expected=1.5,2.5             an option of a method
    momentum=0.5,0.8                an option of every method of the run that has it, or of its head
    K=1.5,2.5  mu=0.5,0.8           the same by its symbol in papers, see `SYMBOLS`
    crop_scale=[0.25,1],[0.5,1]     values that are lists

The second figure scores images with exactly 1, 2, … 7 true labels: K of EN shifts a classifier toward predicting more
or fewer labels (Verelst et al., WACV 2023, Figs. 5b to 5d).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tagfill import figures
from tagfill.engines import create_engine
from tagfill.errors import TagfillError, unknown_name
from tagfill.experiments.analyses.groups import map_by_label_count
from tagfill.experiments.analyses.inputs import AnalysisInput, AnalyzedRun, mean_and_deviation
from tagfill.experiments.report import Figure, Section, Table
from tagfill.experiments.report.section import report_figure
from tagfill.experiments.runs import RunJob, check_job, run_jobs
from tagfill.io import nan_to_none
from tagfill.methods import ALIASES, METHODS
from tagfill.models import HEADS
from tagfill.options import option_parameters, parse_assignment, parse_values
from tagfill.training import Recipe, Run, make_recipe, override
from tagfill.training.recipe import Stage

SYMBOLS = {
    "K": ("expected",),
    "kappa": ("expected",),
    "mu": ("momentum",),
    "alpha": ("boost", "alpha"),
    "beta": ("boost_from", "beta"),
    "delta": ("rate",),
    "gamma": ("gamma", "weight"),
    "d+": ("d_positive",),
    "d-": ("d_negative",),
}
_EXAMPLE = "--set mu=0.5,0.8"
_ALSO = {"momentum": "scores_momentum"}  # of the scores that SCL shares with EN, whose momentum must be the same
_LABEL_COUNTS = [str(number) for number in range(1, 8)]
_LOG_RATIO = 20  # of the largest to the smallest value, from which an axis is logarithmic

Choice = tuple[Any, ...]


@dataclass(frozen=True)
class SweepAxis:
    """A setting to vary.

    Attributes:
        name: as the user wrote it.
        paths: in the recipe; all of them get the same value.
        values: to try.
    """

    name: str
    paths: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    def positions(self) -> list[Any]:
        """Where the values go on the x-axis."""
        return list(self.values) if self.numeric else [str(value) for value in self.values]


def analyze_sweep(
    inputs: AnalysisInput, *, seeds: int = 3, split: str = "val", jobs: int | None = None, engine: str = "joblib"
) -> Section:
    """Validation mAP over values of any setting, and over images with 1 to 7 true labels; trains new runs.

    Args:
        inputs: one run, whose recipe is varied, and the values to try.
        seeds: number of runs per combination.
        split: to score.
        jobs: number of processes; one per core by default.
        engine: that runs them, `joblib` or `ray`.
    """
    if len(inputs.runs) != 1:
        raise TagfillError("A sweep varies the settings of one run; give one run folder.")
    (base,) = inputs.runs
    assert base.dataset.folder is not None
    recipe = base.run.recipe.model_copy(update={"dataset": str(base.dataset.folder.absolute())})
    axes = parse_axes(inputs.settings, recipe)
    planned = []
    for choice in product(*(axis.values for axis in axes)):
        names = [f"{axis.name}={value}" for axis, value in zip(axes, choice, strict=True)]
        for seed in range(seeds):
            folder = inputs.folder / "runs" / f"{'-'.join(names).replace('/', '_').replace(' ', '')}-s{seed}"
            title = ", ".join([*names, f"seed {seed}"])
            job = RunJob(title, vary_recipe(recipe, axes, choice, seed), folder, split)
            check_job(job)
            planned.append((_hashable(choice), job))
    scores: dict[Choice, list[float]] = {}
    by_count: dict[Choice, list[dict[str, float]]] = {}
    outcomes = run_jobs([job for _, job in planned], create_engine(engine, workers=jobs), inputs.progress)
    for (choice, job), outcome in zip(planned, outcomes, strict=True):
        if outcome.error is not None:
            raise TagfillError(f"{job.title}: {outcome.error}")
        scores.setdefault(choice, []).append(outcome.score)
        run = AnalyzedRun(job.title, Run.open(job.folder), base.dataset)
        counts = map_by_label_count(run.predictions(split), most=len(_LABEL_COUNTS) + 1)
        by_count.setdefault(choice, []).append(counts)

    axis_names = tuple(axis.name for axis in axes)
    best = max(scores, key=lambda choice: mean_and_deviation(scores[choice])[0])
    mean, deviation = mean_and_deviation(scores[best])
    rows = [
        (*choice, *(nan_to_none(number, 4) for number in mean_and_deviation(values)), len(values))
        for choice, values in scores.items()
    ]
    table = Table("sweep", f"{split} mAP of each combination.", (*axis_names, "mAP", "deviation", "seeds"), rows)
    chosen = ", ".join(f"{name} = {value}" for name, value in zip(axis_names, best, strict=True))
    return Section(
        "sweep",
        f"Sweep over {' and '.join(axis_names)}",
        (f"The highest {split} mAP is {mean:.2f} ± {deviation:.2f}, with {chosen}.",),
        (_draw_scores(axes, scores, split, table), _draw_label_counts(axes, by_count, best, split)),
        (table,),
        facts={
            "best": dict(zip(axis_names, best, strict=True)),
            "mAP": nan_to_none(mean, 2),
            "deviation": nan_to_none(deviation, 2),
        },
    )


def parse_axes(texts: Sequence[str], recipe: Recipe) -> list[SweepAxis]:
    """Parse settings and their values for the methods and the head of a recipe."""
    if not texts:
        raise TagfillError("A sweep needs something to vary; write --set K=1.5,2.5 or --set optimizer.lr=1e-3,1e-4.")
    axes = []
    for text in texts:
        name, values = parse_assignment(text, _EXAMPLE)
        axes.append(SweepAxis(name, _find_paths(name, recipe), tuple(parse_values(values, _EXAMPLE))))
    return axes


def _find_paths(name: str, recipe: Recipe) -> tuple[str, ...]:
    """The paths in the recipe that a name, an option or a symbol refers to."""
    first, _, rest = name.partition(".")
    if first in Recipe.model_fields or first in Stage.model_fields:
        return (name,)
    options: dict[str, str] = {}
    for method in recipe.method.split("+"):
        parameters = option_parameters(METHODS[ALIASES.get(method, method)])
        options |= {f"options.{method}.{option}": option for option in parameters}
    options |= {f"head_options.{option}": option for option in option_parameters(HEADS[recipe.head])}
    if rest and f"options.{name}" in options:
        return (f"options.{name}",)
    for wanted in SYMBOLS.get(name, (name,)):
        found = tuple(path for path, option in options.items() if option in (wanted, _ALSO.get(wanted)))
        if found:
            return found
    known = {*options.values(), *Recipe.model_fields, *Stage.model_fields}
    raise unknown_name("setting", name, known, of=recipe.method)


def vary_recipe(recipe: Recipe, axes: Sequence[SweepAxis], choice: Choice, seed: int) -> Recipe:
    """A recipe with other values and another seed."""
    content = recipe.model_dump(mode="json") | {"seed": seed, "record": []}
    for axis, value in zip(axes, choice, strict=True):
        for path in axis.paths:
            override(content, path, value)
            head, _, rest = path.partition(".")
            for stage in content["stages"] if head == "options" else []:
                if rest.partition(".")[0] in (stage["options"] or {}):  # the stage has options of its own
                    override(stage, path, value)
    return make_recipe(content, "the settings of the sweep")


def _hashable(choice: Choice) -> Choice:
    return tuple(str(value) if isinstance(value, list) else value for value in choice)


def _draw_scores(axes: Sequence[SweepAxis], scores: dict[Choice, list[float]], split: str, table: Table) -> Figure:
    """The first setting along the x-axis, a line for each combination of the others."""
    figure, panel = figures.new_figure(6.4, 3.8)
    first, *others = axes
    for position, rest in enumerate(dict.fromkeys(choice[1:] for choice in scores)):
        pairs = [mean_and_deviation(scores[choice]) for choice in scores if choice[1:] == rest]
        label = ", ".join(f"{axis.name} {value}" for axis, value in zip(others, rest, strict=True))
        figures.plot_mean_and_band(panel, first.positions(), pairs, position, label or "mAP")
    _label_axis(panel, first, f"{split} mAP, percent")
    figures.legend_above(figure, panel)
    caption = f"Mean {split} mAP over {first.name}. Bands are one standard deviation over seeds."
    return report_figure(figure, "sweep", caption, f"Lines over {len(first.values)} values.", table)


def _draw_label_counts(
    axes: Sequence[SweepAxis], by_count: dict[Choice, list[dict[str, float]]], best: Choice, split: str
) -> Figure:
    """The first setting along the x-axis, a line for each number of true labels; other settings at their best."""
    figure, panel = figures.new_figure(6.4, 3.8)
    first, shown = axes[0], [choice for choice in by_count if choice[1:] == best[1:]]
    rows = []
    for position, count in enumerate(_LABEL_COUNTS):
        pairs = [mean_and_deviation([seed.get(count, np.nan) for seed in by_count[choice]]) for choice in shown]
        if all(np.isnan(mean) for mean, _ in pairs):
            continue
        middle, _ = mean_and_deviation([mean for mean, _ in pairs])
        centered = [(mean - middle, deviation) for mean, deviation in pairs]
        figures.plot_mean_and_band(panel, first.positions(), centered, position, count)
        rows += [
            (choice[0], int(count), nan_to_none(m, 4), nan_to_none(m - middle, 4), nan_to_none(d, 4))
            for choice, (m, d) in zip(shown, pairs, strict=True)
        ]
    panel.axhline(0, color=figures.TEXT, linewidth=0.8)
    _label_axis(panel, first, f"{split} mAP minus mean of the line, points")
    figures.legend_above(figure, panel, columns=7)
    fixed = "".join(f" with {axis.name} = {value}" for axis, value in zip(axes[1:], best[1:], strict=True))
    return report_figure(
        figure,
        "label-counts",
        f"The same{fixed}, one line per number of true labels of an image, minus the mean of the line. A line that "
        "rises to the right gains from larger values.",
        f"Lines over {len(first.values)} values, one for each number of labels.",
        Table(
            "label-counts",
            "mAP by number of true labels of an image.",
            (first.name, "labels", "mAP", "minus mean", "deviation"),
            rows,
        ),
    )


def _label_axis(panel: Any, axis: SweepAxis, y: str) -> None:
    figures.label_panel(panel, "", axis.name, y)
    if not axis.numeric:
        return
    if min(axis.values) > 0 and max(axis.values) >= _LOG_RATIO * min(axis.values):
        panel.set_xscale("log")
    panel.set_xticks(list(axis.values), [f"{value:g}" for value in axis.values])
    panel.minorticks_off()
