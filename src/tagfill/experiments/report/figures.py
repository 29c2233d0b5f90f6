"""Figures of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.experiments.report.drawing import TEXT, colour, new_figure, svg


def leaderboard(names: Sequence[str], means: Sequence[float], deviations: Sequence[float]) -> str:
    """Bars of mean scores, best on top, with the deviation over seeds."""
    figure, axes = new_figure(7, 0.6 + 0.34 * len(names))
    places = np.arange(len(names))[::-1]
    shown = [deviation if deviation > 0 else np.nan for deviation in deviations]
    axes.barh(places, means, xerr=shown, color=[colour(i) for i in range(len(names))], height=0.66, ecolor=TEXT)
    axes.set_yticks(places, names)
    low, high = min(means), max(means)
    axes.set_xlim(max(0.0, low - 0.6 * (high - low) - 1), high + 0.16 * (high - low) + 1)
    for place, mean, deviation in zip(places, means, deviations, strict=True):
        end = (mean + deviation, place)
        axes.annotate(f"{mean:.1f}", end, xytext=(6, 0), textcoords="offset points", va="center")
    axes.set_xlabel("mAP in percent; the axis does not begin at 0")
    return svg(figure)


def learning_curves(curves: Mapping[str, Sequence[float]], best: Mapping[str, int]) -> str:
    """Validation mAP by epoch, a line a method, a dot at the epoch that was chosen."""
    figure, axes = new_figure(7, 3.6)
    for position, (name, values) in enumerate(curves.items()):
        axes.plot(np.arange(1, len(values) + 1), values, color=colour(position), label=name, linewidth=1.6)
        if name in best and best[name] <= len(values):
            axes.plot([best[name]], [values[best[name] - 1]], "o", color=colour(position), markersize=5)
    axes.set_xlabel("epoch")
    axes.set_ylabel("validation mAP")
    axes.grid(visible=True)
    _legend_beside(axes)
    return svg(figure)


def class_bars(classes: Sequence[str], floor: NDArray[np.float64], ceiling: NDArray[np.float64] | None,
               best: NDArray[np.float64], names: tuple[str, str | None, str]) -> str:  # fmt: skip
    """Average precision of each class: from the floor to the best method, and the ceiling as a mark.

    Args:
        classes: names, in the order to show.
        floor: of the method that reads unknown as absent.
        ceiling: of complete labels, if it is known.
        best: of the best method that saw partial labels only.
        names: of floor, ceiling and best.
    """
    figure, axes = new_figure(7, 0.8 + 0.26 * len(classes))
    places = np.arange(len(classes))[::-1]
    axes.hlines(places, floor, best, color=TEXT, alpha=0.35, linewidth=2)
    axes.plot(floor, places, "o", color=colour(9), label=names[0], markersize=6)
    axes.plot(best, places, "o", color=colour(0), label=names[2], markersize=6)
    if ceiling is not None:
        axes.plot(ceiling, places, "|", color=TEXT, label=names[1], markersize=11)
    axes.set_yticks(places, classes)
    axes.set_ylim(-0.8, len(classes) - 0.2)
    axes.set_xlabel("average precision in percent")
    axes.grid(visible=True, axis="x")
    _legend_beside(axes)
    return svg(figure)


def score_histograms(groups: Mapping[str, Mapping[str, NDArray[np.floating]]], *, bins: int = 40) -> str:
    """How high observed, missed and absent labels score, a panel a method.

    Args:
        groups: probabilities of each kind of label, of each method.
        bins: of each panel.
    """
    columns = 2
    rows = -(-len(groups) // columns)
    figure, panels = new_figure(7, 0.5 + 1.9 * rows, rows=rows, columns=columns)
    edges = np.linspace(0, 1, bins + 1)
    for panel, (name, kinds) in zip(panels.flat, groups.items(), strict=False):
        for position, (kind, values) in enumerate(kinds.items()):
            if len(values):
                share = np.histogram(values, edges)[0] / len(values)
                panel.stairs(share, edges, color=colour((0, 1, 9)[position % 3]), label=kind, linewidth=1.4)
        panel.set_title(name, fontsize=10, color=TEXT)
        panel.set_yscale("log")
        panel.set_xlim(0, 1)
    for panel in list(panels.flat)[len(groups) :]:
        panel.set_visible(False)
    handles, kinds_shown = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, kinds_shown, loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    figure.supxlabel("predicted probability", fontsize=9)
    figure.supylabel("share of labels", fontsize=9)
    return svg(figure)


def _legend_beside(axes: Any) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, frameon=False)
