"""Figures of the report, narrow enough to be read on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.experiments import drawing
from tagfill.experiments.report.contents.looking import EDGES

WIDTH = 5.2  # inches; a page shows it at about the width of a hand's screen and up to twice that
KINDS = {"observed": "#4477aa", "missed": "#ee6677", "absent": "#8a8f98", "unknown": "#8a8f98"}
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_WORDS = 9.0


def curves(lines: Mapping[str, Sequence[Sequence[float]]], best: Mapping[str, int], colours: Mapping[str, str]) -> Any:
    """Validation mAP by epoch: the mean of each method's seeds, the seeds behind it, a dot at the best epoch."""
    figure, axes = drawing.new_figure(WIDTH, 3.6)
    for position, (name, seeds) in enumerate(lines.items()):
        shortest = min(map(len, seeds))
        mean = np.mean([seed[:shortest] for seed in seeds], axis=0)
        style = {"color": colours[name], "linestyle": _DASHES[(position // 5) % len(_DASHES)]}
        if len(seeds) > 1:
            for seed in seeds:
                axes.plot(np.arange(1, len(seed) + 1), seed, linewidth=0.7, alpha=0.35, color=colours[name])
        axes.plot(np.arange(1, shortest + 1), mean, linewidth=1.7, label=drawing.words(name), **style)
        if 0 < best.get(name, 0) <= shortest:
            axes.plot([best[name]], [mean[best[name] - 1]], "o", color=colours[name], markersize=4.5)
    axes.set_xlabel("epoch", fontsize=_WORDS)
    axes.set_ylabel("validation mAP", fontsize=_WORDS)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _finish(axes)
    _legend(figure, axes)
    return figure


def class_marks(
    classes: Sequence[str], marks: Mapping[str, NDArray[np.float64]], colours: Mapping[str, str], ceiling: str | None
) -> Any:
    """Average precision of each class: a dot a method, joined by a line, and a stroke at the ceiling."""
    figure, axes = drawing.new_figure(WIDTH, 0.9 + 0.23 * len(classes))
    places = np.arange(len(classes))[::-1]
    dots = {name: values for name, values in marks.items() if name != ceiling}
    if len(dots) > 1:
        stacked = np.stack(list(dots.values()))
        axes.hlines(places, np.nanmin(stacked, 0), np.nanmax(stacked, 0), color=drawing.TEXT, alpha=0.3, linewidth=2)
    elif dots:
        only = next(iter(dots))
        axes.barh(places, dots[only], color=colours[only], height=0.5, alpha=0.35)
    for name, values in dots.items():
        axes.plot(values, places, "o", color=colours[name], label=drawing.words(name), markersize=5.5)
    if ceiling is not None:
        axes.plot(marks[ceiling], places, "|", color=drawing.TEXT, label=drawing.words(ceiling), markersize=10, mew=1.6)
    axes.set_yticks(places, [drawing.words(name) for name in classes])
    axes.set_ylim(-0.8, len(classes) - 0.2)
    axes.set_xlim(right=101)
    axes.set_xlabel("average precision, percent", fontsize=_WORDS)
    _finish(axes, axis="x")
    _legend(figure, axes)
    return figure


def distribution(name: str, shares: Mapping[str, NDArray[np.float64]], *, legend: bool) -> Any:
    """How high labels of each kind score."""
    figure, axes = drawing.new_figure(3.4, 2.1)
    for kind, values in shares.items():
        axes.stairs(values, EDGES, color=KINDS[kind], label=kind, linewidth=1.5, fill=False)
        axes.stairs(values, EDGES, color=KINDS[kind], alpha=0.14, fill=True)
    axes.set_yscale("log")
    axes.set_ylim(5e-4, 1.3)
    axes.set_yticks([0.001, 0.01, 0.1, 1], ["0.1 %", "1 %", "10 %", "100 %"])
    axes.minorticks_off()
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability", fontsize=8)
    axes.set_title(drawing.words(name), fontsize=10, color=drawing.TEXT)
    if legend:
        axes.legend(loc="upper right", frameon=False, labelcolor=drawing.TEXT, fontsize=7.5)
    _finish(axes, size=8)
    return figure


def recovery(lines: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], colours: Mapping[str, str]) -> Any:
    """Precision against recall of unobserved labels."""
    figure, axes = drawing.new_figure(WIDTH, 3.6)
    for position, (name, (recall, precision)) in enumerate(lines.items()):
        style = _DASHES[(position // 5) % len(_DASHES)]
        shown = {"color": colours[name], "linestyle": style, "label": drawing.words(name)}
        axes.plot(100 * recall, 100 * precision, linewidth=1.7, **shown)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    axes.set_xlabel("missing labels found, percent", fontsize=_WORDS)
    axes.set_ylabel("of those called present, right, percent", fontsize=_WORDS)
    _finish(axes)
    _legend(figure, axes)
    return figure


def _finish(axes: Any, *, axis: str = "both", size: float = _WORDS) -> None:
    axes.grid(visible=True, axis=axis)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=size, length=3)


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        columns, style = min(4, len(labels)), {"frameon": False, "labelcolor": drawing.TEXT, "fontsize": _WORDS}
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, **style)
