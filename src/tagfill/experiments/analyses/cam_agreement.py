"""Do partial labels change where a model looks, or how much it says there?

False negatives leave the order of a class map's cells nearly as it is, and shrink the high ones of present labels,
which is what a boost mends. Kim et al., Bridging the Gap between Model Explanations in Partially Annotated Multi-label
Classification, CVPR 2023, Figs. 2 and 4. What is measured is in `map_comparison`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.experiments import drawing
from tagfill.experiments.analyses import charts
from tagfill.experiments.analyses.boosted_maps import picture_rows
from tagfill.experiments.analyses.map_comparison import SHARE, Measured, measure
from tagfill.experiments.analyses.subjects import Question
from tagfill.experiments.report import Figure, Section, Table

_QUANTILES = (5, 25, 50, 75, 95)


def cam_agreement(
    question: Question, *, split: str = "test", images: int = 5000, rows: int = 5, boost: float = 5.0
) -> Section:
    """Class maps of a model from complete labels and of one from partial labels: agreement and attribution scores.

    Args:
        question: the run with complete labels, the one with partial labels, and others that are only pictured.
        split: whose images are looked at.
        images: how many at most, evenly spread.
        rows: of pictures.
        boost: α for pictures of the second run boosted at inference alone.
    """
    if len(question.subjects) < 2:
        raise TagfillError("cam-agreement compares two runs: first that with complete labels, then another.")
    full, partial = question.subjects[:2]
    names = (full.label, partial.label if partial.label != full.label else f"{partial.label} (second)")
    found = measure(full, partial, split, images)
    figures = [_agreement(found, names), _attribution(found, names)]
    drawn = picture_rows(question.subjects, split, rows, boost)
    figures += [] if drawn is None else [drawn]
    medians = {
        key: round(float(np.nanmedian(values)), 4)
        for key, values in (("agreement", found.agreement), ("control", found.control))
    }
    text = (
        f"Over {len(found.agreement):,} present labels of {split}, the maps of {names[1]} rank cells like those of "
        f"{names[0]} with a median correlation of {medians['agreement']:.2f}; a Gaussian at the centre has "
        f"{medians['control']:.2f}."
    )
    facts = {"median": medians, "attribution": {row[0]: row[1:] for row in _boxes(found, names)}}
    missing = () if drawn else ("The images themselves are not at hand, so there are no pictures of maps.",)
    return Section("cam-agreement", "Agreement of class maps", (text, *missing), tuple(figures), facts=facts)


def _agreement(found: Measured, names: tuple[str, str]) -> Figure:
    figure, panel = drawing.new_figure(6.4, 3.6)
    edges = np.linspace(-1, 1, 41)
    rows = []
    named = {f"{names[0]} and {names[1]}": found.agreement, f"{names[0]} and a centred Gaussian": found.control}
    for position, (name, values) in enumerate(named.items()):
        known = values[~np.isnan(values)]
        counts, _ = np.histogram(known, bins=edges)
        share = 100 * counts / max(len(known), 1)
        panel.stairs(share, edges, fill=True, color=drawing.colour(position), alpha=0.45, label=name)
        panel.stairs(share, edges, color=drawing.colour(position), linewidth=1.4)
        rows += [
            (name, round(float(low), 4), round(float(high), 4), int(count))
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    charts.dress(panel, "", "Spearman correlation of class maps", "percent of present labels")
    panel.set_xlim(-1, 1)
    charts.legend(figure, panel, columns=1)
    return drawing.finished(
        figure,
        "agreement",
        "Rank correlation of the class maps of two models, for each image and label that is present, and that of the "
        "first one with a Gaussian at the centre.",
        f"Two histograms; medians {np.nanmedian(found.agreement):.2f} and {np.nanmedian(found.control):.2f}.",
        Table("agreement", "Present labels in each step of the correlation.", ("pair", "from", "to", "labels"), rows),
    )


def _boxes(found: Measured, names: tuple[str, str]) -> list[tuple[Any, ...]]:
    """What box plots are drawn from: names, number of labels, mean, and five quantiles."""
    rows: list[tuple[Any, ...]] = []
    for (end, kind, model), values in sorted(found.attribution.items()):
        if len(values):
            numbers = [round(float(value), 4) for value in (values.mean(), *np.percentile(values, _QUANTILES))]
            rows.append((f"{end}, {kind}, {names[model]}", len(values), *numbers))
    return rows


def _attribution(found: Measured, names: tuple[str, str]) -> Figure:
    figure, panels = drawing.new_panels(8.6, 3.6, columns=2)
    for panel, end in zip(panels, ("top", "bottom"), strict=True):
        for place, kind in enumerate(("positive", "negative")):
            for model in (0, 1):
                values = found.attribution.get((end, kind, model), np.empty(0))
                if len(values):
                    _box(panel, place + (model - 0.5) * 0.36, values, drawing.colour(model))
        panel.set_xticks([0, 1], ["positive labels", "negative labels"])
        panel.set_xlim(-0.6, 1.6)
        which = "highest" if end == "top" else "lowest"
        charts.dress(panel, f"{which} {SHARE:.0%} of cells", "", "mean attribution score")
        panel.grid(visible=False, axis="x")
    for model in (0, 1):
        panels[0].plot([], [], color=drawing.colour(model), linewidth=6, alpha=0.6, label=names[model])
    charts.legend(figure, panels[0])
    columns = ("boxes", "labels", "mean", *(f"{quantile} %" for quantile in _QUANTILES))
    return drawing.finished(
        figure,
        "attribution",
        f"Mean of the highest and of the lowest {SHARE:.0%} of the cells of class maps. Boxes hold the middle half, "
        "lines reach from 5 to 95 percent.",
        "Box plots of two models for positive and negative labels.",
        Table("attribution", "Quantiles of attribution scores.", columns, _boxes(found, names)),
    )


def _box(panel: Any, at: float, values: NDArray[np.float64], colour: str) -> None:
    low, first, median, third, high = np.percentile(values, _QUANTILES).tolist()
    stats = [{"med": median, "q1": first, "q3": third, "whislo": low, "whishi": high, "fliers": []}]
    panel.bxp(
        stats,
        positions=[at],
        widths=0.3,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "alpha": 0.6, "edgecolor": colour},
        medianprops={"color": drawing.TEXT, "linewidth": 1.6},
        whiskerprops={"color": colour, "linewidth": 1.4},
        capprops={"color": colour, "linewidth": 1.4},
        manage_ticks=False,
    )
