"""What a setting is worth: validation mAP over its values, with seeds; and how it shifts towards many labels.

One run says what is trained, and the sweep trains it anew with each combination of values. The second figure scores
images with exactly 1, 2, … 7 true labels: K of EN moves a classifier towards predicting more or fewer (Verelst et al.,
WACV 2023, Figs. 5b to 5d).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tagfill.engines import create_engine
from tagfill.errors import TagfillError
from tagfill.experiments import drawing
from tagfill.experiments.analyses import charts, sweeping
from tagfill.experiments.analyses.charts import plain
from tagfill.experiments.analyses.groups import by_labels
from tagfill.experiments.analyses.subjects import Question, Subject, mean_and_deviation
from tagfill.experiments.analyses.sweeping import Axis
from tagfill.experiments.report import Figure, Section, Table
from tagfill.experiments.running import Job, check, run_all
from tagfill.training import Recipe, Run

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
    axes = sweeping.parse(question.settings, recipe)
    choices = sweeping.combinations(axes)
    planned = [
        (choice, _job(question, recipe, axes, choice, seed, split)) for choice in choices for seed in range(seeds)
    ]
    for _, job in planned:
        check(job)
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
    return Job(", ".join([*named, f"seed {seed}"]), sweeping.varied(recipe, axes, choice, seed), folder, split)


def _section(
    axes: Sequence[Axis],
    scores: dict[Choice, list[float]],
    counted: dict[Choice, list[dict[str, float]]],
    split: str,
) -> Section:
    names = tuple(axis.name for axis in axes)
    rows = [
        (*choice, *(plain(v) for v in mean_and_deviation(values)), len(values)) for choice, values in scores.items()
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
        facts={"best": dict(zip(names, best, strict=True)), "mAP": plain(mean, 2), "deviation": plain(spread, 2)},
    )


def _drawn(axes: Sequence[Axis], scores: dict[Choice, list[float]], split: str, table: Table) -> Figure:
    """The first setting from left to right, a line for each combination of the others."""
    figure, panel = drawing.new_figure(6.4, 3.8)
    first, *others = axes
    for position, rest in enumerate(dict.fromkeys(choice[1:] for choice in scores)):
        pairs = [mean_and_deviation(scores[choice]) for choice in scores if choice[1:] == rest]
        label = ", ".join(f"{axis.name} {value}" for axis, value in zip(others, rest, strict=True))
        charts.line(panel, _places(first), pairs, position, label or "mAP")
    _dress(panel, first, f"{split} mAP, percent")
    charts.legend(figure, panel)
    caption = f"Mean {split} mAP over {first.name}; a band is one deviation over seeds."
    return drawing.finished(figure, "sweep", caption, f"Lines over {len(first.values)} values.", table)


def _by_count(axes: Sequence[Axis], counted: dict[Choice, list[dict[str, float]]], best: Choice, split: str) -> Figure:
    """Images with each number of true labels; of the other settings, their best values."""
    figure, panel = drawing.new_figure(6.4, 3.8)
    first, shown = axes[0], [choice for choice in counted if choice[1:] == best[1:]]
    rows = []
    for position, count in enumerate(_COUNTS):
        pairs = [mean_and_deviation([seed.get(count, np.nan) for seed in counted[choice]]) for choice in shown]
        if all(np.isnan(mean) for mean, _ in pairs):
            continue
        middle, _ = mean_and_deviation([mean for mean, _ in pairs])
        charts.line(panel, _places(first), [(m - middle, d) for m, d in pairs], position, count)
        rows += [
            (choice[0], int(count), plain(m), plain(m - middle), plain(d))
            for choice, (m, d) in zip(shown, pairs, strict=True)
        ]
    panel.axhline(0, color=drawing.TEXT, linewidth=0.8)
    _dress(panel, first, f"{split} mAP against its mean, points")
    charts.legend(figure, panel, columns=7)
    rest = "".join(f", {axis.name} = {value}" for axis, value in zip(axes[1:], best[1:], strict=True))
    return drawing.finished(
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
    charts.dress(panel, "", axis.name, y)
    if not _numbers(axis):
        return
    if min(axis.values) > 0 and max(axis.values) >= _WIDE * min(axis.values):
        panel.set_xscale("log")
    panel.set_xticks(list(axis.values), [f"{value:g}" for value in axis.values])
    panel.minorticks_off()
