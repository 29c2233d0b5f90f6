"""Which settings a sweep tries: paths of a recipe, options of methods and heads, or the letters that papers use.

optimizer.lr=1e-3,1e-4          a setting by its path
en.expected=1.5,2.5             an option of a method
momentum=0.5,0.8                an option of every method of the run that has it, or of its head
K=1.5,2.5  mu=0.5,0.8           the same by its letter, see `LETTERS`
crop_scale=[0.25,1],[0.5,1]     values that are lists


What a setting is worth: validation mAP over its values, with seeds; and how it shifts towards many labels.

One run says what is trained, and the sweep trains it anew with each combination of values. The second figure scores
images with exactly 1, 2, … 7 true labels: K of EN moves a classifier towards predicting more or fewer (Verelst et al.,
WACV 2023, Figs. 5b to 5d).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tagfill import methods
from tagfill.engines import create_engine
from tagfill.errors import TagfillError, unknown_name
from tagfill.experiments import figures
from tagfill.experiments.analyses import subjects
from tagfill.experiments.analyses.groups import by_labels
from tagfill.experiments.analyses.subjects import Question, Subject, mean_and_deviation
from tagfill.experiments.report import Figure, Section, Table
from tagfill.experiments.runs import Job, check_jobs, run_all
from tagfill.io import nan_to_none
from tagfill.methods import METHODS
from tagfill.models import HEADS
from tagfill.options import option_parameters, parse_assignment, parse_values
from tagfill.training import Recipe, Run, make_recipe, override
from tagfill.training.recipe import Stage

LETTERS = {
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


@dataclass(frozen=True)
class Axis:
    """A setting to vary.

    Attributes:
        name: as it was written.
        paths: of the recipe, which all take the same value.
        values: to try.
    """

    name: str
    paths: tuple[str, ...]
    values: tuple[Any, ...]


_EXAMPLE = "--set mu=0.5,0.8"


def parse_axis(texts: Sequence[str], recipe: Recipe) -> list[Axis]:
    """Settings and their values for the methods and the head of a recipe."""
    if not texts:
        raise TagfillError("A sweep needs something to vary; write --set K=1.5,2.5 or --set optimizer.lr=1e-3,1e-4.")
    axes = []
    for text in texts:
        name, values = parse_assignment(text, _EXAMPLE)
        axes.append(Axis(name, _paths(name, recipe), tuple(parse_values(values, _EXAMPLE))))
    return axes


def combinations(axes: Sequence[Axis]) -> list[tuple[Any, ...]]:
    """All choices of one value of each axis."""
    return list(product(*(axis.values for axis in axes)))


def varied(recipe: Recipe, axes: Sequence[Axis], choice: Sequence[Any], seed: int) -> Recipe:
    """The recipe with a choice put in, and another seed."""
    content = recipe.model_dump(mode="json") | {"seed": seed, "record": []}
    for axis, value in zip(axes, choice, strict=True):
        for path in axis.paths:
            _put(content, path, value)
    return make_recipe(content, "the settings of the sweep")


def _paths(name: str, recipe: Recipe) -> tuple[str, ...]:
    first, _, rest = name.partition(".")
    if first in Recipe.model_fields or first in Stage.model_fields:
        return (name,)
    options = {
        f"options.{method}.{option}": option for method in recipe.method.split("+") for option in _options_of(method)
    }
    options |= {f"head_options.{option}": option for option in option_parameters(HEADS[recipe.head])}
    if rest and f"options.{name}" in options:
        return (f"options.{name}",)
    for wanted in LETTERS.get(name, (name,)):
        found = tuple(path for path, option in options.items() if option == wanted)
        if found:
            return found
    known = {*options.values(), *Recipe.model_fields, *Stage.model_fields}
    raise unknown_name("setting", name, known, of=recipe.method)


def _options_of(method: str) -> list[str]:
    return list(option_parameters(METHODS[methods.ALIASES.get(method, method)]))


def _put(content: dict[str, Any], path: str, value: Any) -> None:
    """Set a value by its path; options of a method also where a stage has its own."""
    override(content, path, value)
    head, _, rest = path.partition(".")
    if head == "options":
        for stage in content["stages"]:
            if rest.partition(".")[0] in (stage["options"] or {}):
                override(stage, path, value)


Choice = tuple[Any, ...]
_COUNTS = [str(number) for number in range(1, 8)]
_WIDE = 20  # from this ratio of the largest to the smallest value on, an axis is logarithmic


def sweep(
    question: Question, *, seeds: int = 3, split: str = "val", jobs: int | None = None, engine: str = "joblib"
) -> Section:
    """Validation mAP over values of any setting, and over images with 1 to 7 true labels; trains anew.

    Args:
        question: one run, whose recipe is varied, and the values to try.
        seeds: runs of each combination.
        split: that gives the scores.
        jobs: processes at once; one a core by default.
        engine: that runs them, `joblib` or `ray`.
    """
    if len(question.subjects) != 1:
        raise TagfillError("A sweep varies the settings of one run; name one run folder.")
    (base,) = question.subjects
    recipe = base.run.recipe
    assert base.dataset.folder is not None
    recipe = recipe.model_copy(update={"dataset": str(base.dataset.folder.absolute())})
    axes = parse_axis(question.settings, recipe)
    choices = combinations(axes)
    planned = [
        (choice, _job(question, recipe, axes, choice, seed, split)) for choice in choices for seed in range(seeds)
    ]
    for _, job in planned:
        check_jobs(job)
    scores: dict[Choice, list[float]] = {_key(choice): [] for choice in choices}
    counted: dict[Choice, list[dict[str, float]]] = {_key(choice): [] for choice in choices}
    outcomes = run_all([job for _, job in planned], create_engine(engine, workers=jobs), question.progress)
    for (choice, job), outcome in zip(planned, outcomes, strict=True):
        if outcome.error is not None:
            raise TagfillError(f"{job.title}: {outcome.error}")
        scores[_key(choice)].append(outcome.score)
        run = Subject(job.title, Run.open(job.folder), base.dataset)
        counted[_key(choice)].append(by_labels(run.predictions(split), most=len(_COUNTS) + 1))
    return _section(axes, scores, counted, split)


def _key(choice: Choice) -> Choice:
    return tuple(str(value) if isinstance(value, list) else value for value in choice)


def _job(question: Question, recipe: Recipe, axes: Sequence[Axis], choice: Choice, seed: int, split: str) -> Job:
    named = [f"{axis.name}={value}" for axis, value in zip(axes, choice, strict=True)]
    folder = question.folder / "runs" / f"{'-'.join(named).replace('/', '_').replace(' ', '')}-s{seed}"
    return Job(", ".join([*named, f"seed {seed}"]), varied(recipe, axes, choice, seed), folder, split)


def _section(
    axes: Sequence[Axis],
    scores: dict[Choice, list[float]],
    counted: dict[Choice, list[dict[str, float]]],
    split: str,
) -> Section:
    names = tuple(axis.name for axis in axes)
    rows = [
        (*choice, *(nan_to_none(v, 4) for v in mean_and_deviation(values)), len(values))
        for choice, values in scores.items()
    ]
    best = max(scores, key=lambda choice: mean_and_deviation(scores[choice])[0])
    chosen = ", ".join(f"{name} = {value}" for name, value in zip(names, best, strict=True))
    mean, spread = mean_and_deviation(scores[best])
    table = Table("sweep", f"{split} mAP of each combination.", (*names, "mAP", "deviation", "seeds"), rows)
    text = f"The highest {split} mAP, {mean:.2f} ± {spread:.2f}, has {chosen}."
    shares = _by_count(axes, counted, best, split)
    return Section(
        "sweep",
        f"Sweep over {' and '.join(names)}",
        (text,),
        (_drawn(axes, scores, split, table), shares),
        (table,),
        facts={
            "best": dict(zip(names, best, strict=True)),
            "mAP": nan_to_none(mean, 2),
            "deviation": nan_to_none(spread, 2),
        },
    )


def _drawn(axes: Sequence[Axis], scores: dict[Choice, list[float]], split: str, table: Table) -> Figure:
    """The first setting from left to right, a line for each combination of the others."""
    figure, panel = figures.new_figure(6.4, 3.8)
    first, *others = axes
    for position, rest in enumerate(dict.fromkeys(choice[1:] for choice in scores)):
        pairs = [mean_and_deviation(scores[choice]) for choice in scores if choice[1:] == rest]
        label = ", ".join(f"{axis.name} {value}" for axis, value in zip(others, rest, strict=True))
        subjects.line(panel, _places(first), pairs, position, label or "mAP")
    _dress(panel, first, f"{split} mAP, percent")
    subjects.legend(figure, panel)
    caption = f"Mean {split} mAP over {first.name}; a band is one deviation over seeds."
    return figures.finished(figure, "sweep", caption, f"Lines over {len(first.values)} values.", table)


def _by_count(axes: Sequence[Axis], counted: dict[Choice, list[dict[str, float]]], best: Choice, split: str) -> Figure:
    """Images with each number of true labels; of the other settings, their best values."""
    figure, panel = figures.new_figure(6.4, 3.8)
    first, shown = axes[0], [choice for choice in counted if choice[1:] == best[1:]]
    rows = []
    for position, count in enumerate(_COUNTS):
        pairs = [mean_and_deviation([seed.get(count, np.nan) for seed in counted[choice]]) for choice in shown]
        if all(np.isnan(mean) for mean, _ in pairs):
            continue
        middle, _ = mean_and_deviation([mean for mean, _ in pairs])
        subjects.line(panel, _places(first), [(m - middle, d) for m, d in pairs], position, count)
        rows += [
            (choice[0], int(count), nan_to_none(m, 4), nan_to_none(m - middle, 4), nan_to_none(d, 4))
            for choice, (m, d) in zip(shown, pairs, strict=True)
        ]
    panel.axhline(0, color=figures.TEXT, linewidth=0.8)
    _dress(panel, first, f"{split} mAP against its mean, points")
    subjects.legend(figure, panel, columns=7)
    rest = "".join(f", {axis.name} = {value}" for axis, value in zip(axes[1:], best[1:], strict=True))
    return figures.finished(
        figure,
        "label-counts",
        f"The same{rest} over images with exactly so many true labels, a line each, against the mean of the line: "
        "what rises to the right gains from larger values.",
        f"Lines over {len(first.values)} values, one for each number of labels.",
        Table(
            "label-counts",
            "mAP by true labels of an image.",
            (first.name, "labels", "mAP", "against mean", "deviation"),
            rows,
        ),
    )


def _numbers(axis: Axis) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in axis.values)


def _places(axis: Axis) -> list[Any]:
    return list(axis.values) if _numbers(axis) else [str(value) for value in axis.values]


def _dress(panel: Any, axis: Axis, y: str) -> None:
    subjects.dress(panel, "", axis.name, y)
    if not _numbers(axis):
        return
    if min(axis.values) > 0 and max(axis.values) >= _WIDE * min(axis.values):
        panel.set_xscale("log")
    panel.set_xticks(list(axis.values), [f"{value:g}" for value in axis.values])
    panel.minorticks_off()
