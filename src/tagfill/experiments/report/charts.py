"""Sections of charts: learning curves, classes, score distributions and label recovery.

Charts are narrow enough to be read on a phone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill import figures
from tagfill.experiments.report.model_scores import EDGES, ImageSample, ModelScores
from tagfill.experiments.report.report_data import ReportData
from tagfill.experiments.report.section import Section, Table, report_figure
from tagfill.io import nan_to_none

WIDTH = 5.2  # inches
MAX_CLASSES = 40
_KIND_COLORS = {"observed": "#4477aa", "missed": "#ee6677", "absent": "#8a8f98", "unknown": "#8a8f98"}
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_FONT_SIZE = 9.0
_PRECISIONS = (0.9, 0.8, 0.5)


def learning_curve_section(report: ReportData) -> Section | None:
    """Validation mAP by epoch; None without a validation split."""
    curves: dict[str, list[list[float]]] = {}
    for method in report.methods:
        seeds = [[line["val_mAP"] for line in run.metrics() if "val_mAP" in line] for run in method.runs]
        if all(seeds):
            curves[method.name] = seeds
    if not curves:
        return None
    best = {method.name: _best_epoch(method.run.metrics()) for method in report.methods}
    rows = [
        (name, seed, epoch, value)
        for name, seeds in curves.items()
        for seed, values in enumerate(seeds)
        for epoch, value in enumerate(values, start=1)
    ]
    figure = report_figure(
        _draw_curves(curves, best, report.colors()),
        "curves",
        "Validation mAP after each epoch. The dot marks the epoch that was kept.",
        "Lines of validation mAP by epoch for " + ", ".join(curves) + ".",
        Table("curves", "Validation mAP by epoch.", ("method", "seed", "epoch", "mAP"), rows),
    )
    table = Table(
        "epochs",
        "First seed: validation mAP after the first, the best and the last epoch.",
        ("method", "first", "best", "best epoch", "last"),
        [(name, values[0][0], max(values[0]), best[name], values[0][-1]) for name, values in curves.items()],
        formats={"first": ".1f", "best": ".1f", "last": ".1f"},
        swatches=report.colors(),
    )
    return Section("curves", "Learning curves", figures=(figure,), tables=(table,))


def _best_epoch(lines: list[dict[str, object]]) -> int:
    """The last epoch that was the best so far, counted over all stages."""
    return max((number for number, line in enumerate(lines, start=1) if line.get("best")), default=0)


def _draw_curves(
    curves: Mapping[str, Sequence[Sequence[float]]], best: Mapping[str, int], colors: Mapping[str, str]
) -> Any:
    """The mean of each method's seeds, thin lines for the seeds, and a dot at the best epoch."""
    figure, panel = figures.new_figure(WIDTH, 3.6)
    for position, (name, seeds) in enumerate(curves.items()):
        shortest = min(map(len, seeds))
        mean = np.mean([seed[:shortest] for seed in seeds], axis=0)
        style = {"color": colors[name], "linestyle": _DASHES[(position // 5) % len(_DASHES)]}
        if len(seeds) > 1:
            for seed in seeds:
                panel.plot(np.arange(1, len(seed) + 1), seed, linewidth=0.7, alpha=0.35, color=colors[name])
        panel.plot(np.arange(1, shortest + 1), mean, linewidth=1.7, label=figures.escape_math(name), **style)
        if 0 < best.get(name, 0) <= shortest:
            panel.plot([best[name]], [mean[best[name] - 1]], "o", color=colors[name], markersize=4.5)
    panel.set_xlabel("epoch", fontsize=_FONT_SIZE)
    panel.set_ylabel("validation mAP", fontsize=_FONT_SIZE)
    panel.xaxis.get_major_locator().set_params(integer=True)
    _add_grid(panel)
    _add_legend(figure, panel)
    return figure


def class_section(report: ReportData, scores: dict[str, ModelScores]) -> Section:
    """Average precision of each class, largest loss against the ceiling first."""
    shown = [method for method in (report.floor, report.best) if method is not None]
    ceiling = report.ceiling
    drawn = {method.name: 100 * scores[method.name].average_precision for method in shown}
    if ceiling is not None and ceiling.name not in drawn:
        drawn[ceiling.name] = 100 * scores[ceiling.name].average_precision
    best = scores[report.best.name].average_precision
    against = scores[ceiling.name].average_precision if ceiling is not None and ceiling is not report.best else None
    order = np.argsort(best if against is None else best - against, kind="stable")
    order = order[~np.isnan(best[order])]
    few = order[:MAX_CLASSES]
    sorting = (
        "lowest first"
        if against is None
        else f"largest loss of `{report.best.name}` compared with complete labels first"
    )
    values_of = {method.name: 100 * scores[method.name].average_precision for method in report.methods}
    rows = [
        (report.data.classes[label], *(nan_to_none(float(values[label])) for values in values_of.values()))
        for label in order.tolist()
    ]
    table = Table(
        "classes",
        f"Average precision of each class on `{report.split}` in percent, first seed; {sorting}.",
        ("class", *values_of),
        rows,
        formats=dict.fromkeys(values_of, ".1f"),
    )
    left_out = len(order) - len(few)
    figure = report_figure(
        _draw_classes(
            [report.data.classes[label] for label in few.tolist()],
            {name: values[few] for name, values in drawn.items()},
            report.colors(),
            None if ceiling is None or len(drawn) == 1 else ceiling.name,
        ),
        "classes-drawn",
        f"Average precision of each class, {sorting}" + (f"; {left_out:,} more are not shown." if left_out else "."),
        "A row for each class with the average precision of " + ", ".join(drawn) + ".",
    )
    return Section("classes", "Classes", figures=(figure,), tables=(table,))


def _draw_classes(
    classes: Sequence[str], values_of: Mapping[str, NDArray[np.float64]], colors: Mapping[str, str], ceiling: str | None
) -> Any:
    """A row per class: a dot per method, joined by a line, and a vertical mark for the ceiling."""
    figure, panel = figures.new_figure(WIDTH, 0.9 + 0.23 * len(classes))
    y = np.arange(len(classes))[::-1]
    dots = {name: values for name, values in values_of.items() if name != ceiling}
    if len(dots) > 1:
        stacked = np.stack(list(dots.values()))
        panel.hlines(y, np.nanmin(stacked, 0), np.nanmax(stacked, 0), color=figures.TEXT, alpha=0.3, linewidth=2)
    elif dots:
        only = next(iter(dots))
        panel.barh(y, dots[only], color=colors[only], height=0.5, alpha=0.35)
    for name, values in dots.items():
        panel.plot(values, y, "o", color=colors[name], label=figures.escape_math(name), markersize=5.5)
    if ceiling is not None:
        label = figures.escape_math(ceiling)
        panel.plot(values_of[ceiling], y, "|", color=figures.TEXT, label=label, markersize=10, mew=1.6)
    panel.set_yticks(y, [figures.escape_math(name) for name in classes])
    panel.set_ylim(-0.8, len(classes) - 0.2)
    panel.set_xlim(right=101)
    panel.set_xlabel("average precision, percent", fontsize=_FONT_SIZE)
    _add_grid(panel, axis="x")
    _add_legend(figure, panel)
    return figure


def distribution_section(report: ReportData, scores: dict[str, ModelScores], train: ImageSample) -> Section:
    """Probabilities of training labels that were observed, missed, absent or unknown."""
    meanings = {
        "observed": "observed: labeled as present",
        "missed": "missed: present but not labeled",
        "absent": "absent: labeled as absent" if report.truth is None else "absent: not in the image",
        "unknown": "unknown: not labeled",
    }
    kinds = list(next(iter(scores.values())).histograms)
    text = (
        "Probabilities that the models predict for labels of training images. "
        + "; ".join(meanings[kind] for kind in kinds).capitalize()
        + ".",
        "A method that recovers missing labels scores missed labels as high as observed ones. The vertical axis is "
        "logarithmic.",
        *_sample_note(train),
    )
    drawn = []
    for number, (name, model) in enumerate(scores.items()):
        columns = ("from", "to", *model.histograms)
        rows = np.column_stack([EDGES[:-1], EDGES[1:], *model.histograms.values()]).tolist()
        formats = {"from": ".3f", "to": ".3f"}
        data = Table(f"distribution-{number}", f"Share of labels for {name}.", columns, rows, formats=formats)
        alt = f"Histogram of the probabilities that {name} predicts for {', '.join(kinds)} labels."
        means = {kind: float(shares @ (EDGES[:-1] + EDGES[1:])) / 2 for kind, shares in model.histograms.items()}
        caption = "Mean, approximately: " + ", ".join(f"{mean:.2f} ({kind})" for kind, mean in means.items()) + "."
        figure = _draw_distribution(name, model.histograms, legend=number == 0)
        drawn.append(report_figure(figure, f"distribution-{number}", caption, alt, data, abreast=3))
    return Section("scores", "Score distributions", text, figures=tuple(drawn))


def _draw_distribution(name: str, histograms: Mapping[str, NDArray[np.float64]], *, legend: bool) -> Any:
    figure, panel = figures.new_figure(3.4, 2.1)
    for kind, shares in histograms.items():
        panel.stairs(shares, EDGES, color=_KIND_COLORS[kind], label=kind, linewidth=1.5, fill=False)
        panel.stairs(shares, EDGES, color=_KIND_COLORS[kind], alpha=0.14, fill=True)
    panel.set_yscale("log")
    panel.set_ylim(5e-4, 1.3)
    panel.set_yticks([0.001, 0.01, 0.1, 1], ["0.1%", "1%", "10%", "100%"])
    panel.minorticks_off()
    panel.set_xlim(0, 1)
    panel.set_xlabel("probability", fontsize=8)
    panel.set_title(figures.escape_math(name), fontsize=10, color=figures.TEXT)
    if legend:
        panel.legend(loc="upper right", frameon=False, labelcolor=figures.TEXT, fontsize=7.5)
    _add_grid(panel, font_size=8)
    return figure


def recovery_section(report: ReportData, scores: dict[str, ModelScores], train: ImageSample) -> Section | None:
    """How many missing labels each model finds; None if the truth is unknown or nothing is missing."""
    recovered = {name: model.recovery for name, model in scores.items() if model.recovery is not None}
    if not recovered:
        return None
    missing = next(iter(recovered.values())).missing
    text = (
        f"{missing:,} labels of the training images are present but were not given to the methods. If unknown labels "
        "are called present in the order of their scores, how many of the missing ones are found (recall), and how "
        "many of the calls are right (precision)?",
        "A model trained on complete labels has seen the answers."
        if report.ceiling is not None
        else "No model has seen the true labels.",
        *_sample_note(train),
    )
    colors = report.colors()
    curves = {name: (curve.recall, curve.precision) for name, curve in recovered.items()}
    rows = [(name, *point) for name, curve in curves.items() for point in np.column_stack(curve).tolist()]
    figure = report_figure(
        _draw_recovery(curves, colors),
        "recovery",
        "Precision and recall of missing labels; up and to the right is better.",
        "Lines of precision against recall of missing labels for " + ", ".join(recovered) + ".",
        Table("recovery", "Precision and recall.", ("method", "recall", "precision"), rows),
    )
    shares = [f"recall at {precision:.0%} precision" for precision in _PRECISIONS]
    table = Table(
        "recovered",
        "Average precision over all unknown labels, and the share of missing labels found at a given precision.",
        ("method", "average precision", *shares),
        [
            (name, curve.average_precision, *(curve.recall_at(precision) for precision in _PRECISIONS))
            for name, curve in sorted(recovered.items(), key=lambda pair: -pair[1].average_precision)
        ],
        formats={"average precision": ".1%", **dict.fromkeys(shares, ".0%")},
        bars=("average precision",),
        swatches=colors,
    )
    return Section("recovery", "Label recovery", text, figures=(figure,), tables=(table,))


def _draw_recovery(
    curves: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], colors: Mapping[str, str]
) -> Any:
    figure, panel = figures.new_figure(WIDTH, 3.6)
    for position, (name, (recall, precision)) in enumerate(curves.items()):
        style = {"color": colors[name], "linestyle": _DASHES[(position // 5) % len(_DASHES)]}
        panel.plot(100 * recall, 100 * precision, linewidth=1.7, label=figures.escape_math(name), **style)
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 102)
    panel.set_xlabel("recall of missing labels, percent", fontsize=_FONT_SIZE)
    panel.set_ylabel("precision, percent", fontsize=_FONT_SIZE)
    _add_grid(panel)
    _add_legend(figure, panel)
    return figure


def _sample_note(sample: ImageSample) -> tuple[str, ...]:
    if len(sample.index) == sample.size:
        return ()
    return (f"Based on {len(sample.index):,} of {sample.size:,} training images, evenly spaced.",)


def _add_grid(panel: Any, *, axis: str = "both", font_size: float = _FONT_SIZE) -> None:
    panel.grid(visible=True, axis=axis)
    panel.set_axisbelow(True)
    panel.tick_params(labelsize=font_size, length=3)


def _add_legend(figure: Any, panel: Any) -> None:
    figures.legend_above(figure, panel, labelcolor=figures.TEXT, fontsize=_FONT_SIZE)
