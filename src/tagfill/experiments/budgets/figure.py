"""The figure of a budget study: mAP-cls and mAP-loc against hours of annotation, a line a kind."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tagfill.experiments import drawing
from tagfill.experiments.budgets.results import Finding, Study

MARKERS = "osD^v"
_WIDE = 5  # from this ratio of the largest to the smallest budget on, hours are on a logarithmic axis


@dataclass(frozen=True)
class Drawn:
    """The same figure as SVG and as PNG."""

    svg: bytes
    png: bytes


def draw(study: Study) -> Drawn | None:
    """The figure; none if no kind has a score."""
    scored = [finding for finding in study.findings if finding.classified]
    if not scored:
        return None
    panels = {"mAP-cls": "classified"} | ({"mAP-loc": "localised"} if any(f.localised for f in scored) else {})
    figure, axes = drawing.new_panels(3.9 * len(panels), 3.5, columns=len(panels))
    for panel, (name, measure) in zip(axes, panels.items(), strict=True):
        for position, kind in enumerate(study.plan.kinds):
            _line(panel, [finding for finding in scored if finding.kind == kind], measure, position, kind)
        panel.set_title(name, fontsize=11, color=drawing.TEXT)
        panel.set_xlabel("hours of annotation")
        panel.set_ylabel(f"{study.split}, percent")
        panel.grid(visible=True)
        _hours(panel, [finding.hours for finding in scored])
    handles, kinds = axes[0].get_legend_handles_labels()
    figure.legend(handles, kinds, loc="outside upper center", ncols=len(kinds), frameon=False)
    return Drawn(drawing.svg_file(figure), drawing.png(figure))


def _line(panel: Any, findings: list[Finding], measure: str, position: int, kind: str) -> None:
    points = [(finding.hours, getattr(finding, measure)) for finding in findings if getattr(finding, measure)]
    panel.errorbar(
        [hours for hours, _ in points],
        [fmean(values) for _, values in points],
        yerr=[stdev(values) if len(values) > 1 else 0.0 for _, values in points],
        color=drawing.colour(position),
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
