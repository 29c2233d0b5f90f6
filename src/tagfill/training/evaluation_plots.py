"""Plots of an evaluation: average precision of each class, precision against recall, and calibration.

Each function draws on a panel, a pair of matplotlib axes; `draw` makes the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tagfill import figures
from tagfill.errors import TagfillError, unknown_name
from tagfill.metrics import RECALL_LEVELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tagfill.training.evaluation_result import Evaluation

MOST_CLASSES = 30  # bars of one plot
_MOST_LINES = 4


def draw(evaluation: Evaluation, *plots: Callable[[Evaluation, Any], None]) -> Figure:
    """A figure with one panel per plot, side by side; it shows itself in a notebook and can be saved.

    Args:
        evaluation: to plot.
        *plots: functions of an evaluation and a panel.
    """
    height = max(3.4, 0.9 + 0.19 * min(len(evaluation.classes), MOST_CLASSES)) if plot_classes in plots else 3.4
    figure: Figure
    figure, panels = figures.new_panels(4.4 * len(plots), height, columns=len(plots))
    for plot, panel in zip(plots, panels, strict=True):
        plot(evaluation, panel)
    return figure


def plot_classes(evaluation: Evaluation, panel: Any) -> None:
    """Average precision of each class as a bar, best on top; of many classes, the best and the worst."""
    order = [c for c in evaluation.order()[::-1] if not np.isnan(evaluation.average_precision[c])]
    shown = order
    if len(order) > MOST_CLASSES:
        shown = [*order[: MOST_CLASSES // 2], *order[-MOST_CLASSES // 2 :]]
    values = 100 * evaluation.average_precision[shown]
    panel.barh(np.arange(len(shown)), values, color=figures.color(0), height=0.7)
    panel.set_yticks(
        np.arange(len(shown)), [figures.escape_math(evaluation.classes[c][:30]) for c in shown], fontsize=8
    )
    panel.invert_yaxis()
    panel.set_xlim(0, 100)
    if not np.isnan(evaluation.mean):
        panel.axvline(100 * evaluation.mean, color=figures.TEXT, linewidth=1, linestyle="--")
    some = f"{len(shown)} best and worst of {len(order)} classes" if len(shown) < len(order) else "Classes"
    figures.label_panel(panel, f"{some}; mAP {100 * evaluation.mean:.1f}", "average precision", "")
    panel.grid(visible=False, axis="y")


def precision_recall_plot(classes: Sequence[str] | None) -> Callable[[Evaluation, Any], None]:
    """A plot of precision against recall: of these classes, or the mean and some classes from the best to the worst."""

    def plot(evaluation: Evaluation, panel: Any) -> None:
        curves = evaluation.precision_at_recall
        if curves is None:
            raise TagfillError("This evaluation has no precision-recall curves; evaluate the run again.")
        scored = ~np.isnan(evaluation.average_precision) & ~np.isnan(curves).any(1)
        recall = 100 * np.asarray(RECALL_LEVELS)
        if classes is None:
            order = [c for c in evaluation.order()[::-1] if scored[c]]
            at = np.unique(np.linspace(0, len(order) - 1, min(_MOST_LINES, len(order))).round().astype(int))
            chosen = [order[position] for position in at]
        else:
            chosen = [_position(evaluation, name) for name in classes]
        for number, c in enumerate(chosen):
            value = 100 * evaluation.average_precision[c]
            label = f"{figures.escape_math(evaluation.classes[c][:24])} ({value:.0f})"
            panel.plot(recall, 100 * curves[c], color=figures.color(number + 1), linewidth=1.2, label=label)
        if classes is None and scored.any():
            panel.plot(recall, 100 * curves[scored].mean(0), color=figures.color(0), linewidth=2.6, label="mean")
        panel.set_xlim(0, 100)
        panel.set_ylim(0, 102)
        if chosen:
            panel.legend(fontsize=8, loc="best", frameon=True, framealpha=0.8, edgecolor="none")
        figures.label_panel(panel, "Precision at recall", "recall, percent", "precision, percent")

    return plot


def _position(evaluation: Evaluation, name: str) -> int:
    if name not in evaluation.classes:
        raise unknown_name("class", name, evaluation.classes)
    return evaluation.classes.index(name)


def plot_calibration(evaluation: Evaluation, panel: Any) -> None:
    """The share of labels that are present against their predicted probability; dots are larger with more labels."""
    found = evaluation.reliability
    if found is None:
        raise TagfillError("This evaluation has no calibration curve; evaluate the run again.")
    used = found.count > 0
    panel.plot([0, 100], [0, 100], color=figures.TEXT, linewidth=1, linestyle="--")
    sizes = 12 + 60 * np.log1p(found.count[used]) / max(np.log1p(found.count).max(), 1.0)
    x, y = 100 * found.predicted[used], 100 * found.present[used]
    panel.plot(x, y, color=figures.color(0), linewidth=1.2)
    panel.scatter(x, y, s=sizes, color=figures.color(0), zorder=3)
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 102)
    title = f"Calibration; mean error {100 * evaluation.calibration_error:.1f} points"
    figures.label_panel(panel, title, "predicted probability, percent", "truly present, percent")
