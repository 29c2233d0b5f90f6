"""Where a method gains and loses: mAP of groups of images, of objects and of classes.

    labels      images with exactly 1, 2, 3, 4 and with 5 or more true labels
    area        positives by the share of the image that they cover, in thirds; other positives of the class are left
                out, negatives are the same for all thirds
    frequency   classes by the number of positives that training saw, rarest first; of several datasets, the first
                simulated one counts
    missing     classes by the share of their training positives that were not annotated, smallest first

Two methods are also compared class by class: the difference in average precision, from the largest loss to the largest
gain, colored by the share of missing labels (Kundu and Tighe, Fig. 5). If the bars on the right are bright, a method
gains where labels are missing. Areas are from appendix D of Verelst et al., WACV 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill import figures
from tagfill.data import Locations
from tagfill.dataset import Dataset, masks
from tagfill.experiments.analyses.inputs import AnalysisInput, mean_and_deviation
from tagfill.experiments.report import Figure, Section, Table
from tagfill.experiments.report.section import report_figure
from tagfill.io import nan_to_none
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.metrics import (
    GatheredPredictions,
    average_precision,
    by_label_count,
    counted_average_precision,
    group_means,
)
from tagfill.training.localization import has_extents

_AXIS_LABELS = {
    "labels": "true labels per image",
    "area": "share of the image covered",
    "frequency": "training positives per class",
    "missing": "share of a class's positives that is missing",
}
_MAX_NAMED = 60  # number of classes up to which bars have names


def analyze_groups(inputs: AnalysisInput, *, split: str = "test", classes: int = 5) -> Section:
    """Scores by number of true labels, object area, class frequency and share of missing labels; classes of two runs.

    Args:
        inputs: the runs.
        split: to score.
        classes: number of groups of classes, from the rarest to the most frequent.
    """
    first = inputs.runs[0].dataset
    count = min(classes, len(first.classes))
    predictions = inputs.predictions(split)
    simulated = next((run for run in inputs.runs if run.dataset.truth is not None), None)
    seen = (first if simulated is None else simulated.dataset).labels("train").positives
    missing = None if simulated is None else missing_share(seen, simulated.truth().positives)
    measures: dict[str, Callable[[GatheredPredictions], dict[str, float]]] = {"labels": map_by_label_count}
    if has_extents(first, split):
        measures["area"] = partial(map_by_area, areas=class_areas(first, split))
    measures["frequency"] = partial(map_by_class, order=seen, count=count, form="{:,.0f}")
    if missing is not None:
        measures["missing"] = partial(map_by_class, order=missing, count=count, form="{:.0%}")
    values = {
        group: {label: [measure(seed) for seed in seeds] for label, seeds in predictions.items()}
        for group, measure in measures.items()
    }
    drawn = [_draw_groups(values, split)]
    facts = {
        group: {
            label: {name: nan_to_none(mean_and_deviation([seed[name] for seed in seeds])[0], 2) for name in seeds[0]}
            for label, seeds in by_run.items()
        }
        for group, by_run in values.items()
    }
    if len(predictions) == 2:
        drawn.append(_draw_difference(predictions, first.classes, missing, seen))
    text = f"Average precision on {split} for groups of images, of objects and of classes."
    return Section("groups", "Groups of images and classes", (text,), tuple(drawn), facts=facts)


def map_by_label_count(scored: GatheredPredictions, most: int = 5) -> dict[str, float]:
    """The mAP in percent over images with each number of true labels."""
    rows = by_label_count(scored.labels, most)
    return {
        name: _percent_map(scored.scores[index], scored.labels[index]) for name, index in rows.items() if len(index)
    }


def map_by_area(scored: GatheredPredictions, areas: NDArray[np.floating], parts: int = 3) -> dict[str, float]:
    """The mAP in percent over positives of each range of sizes; other positives are left out.

    Args:
        scored: the predictions.
        areas: N×L, share of the image that a class covers; NaN if unknown.
        parts: number of groups, with equal numbers of positives.
    """
    areas = areas[scored.index]
    present = (scored.labels == POSITIVE) & ~np.isnan(areas)
    if not present.any():
        return {}
    edges = np.quantile(areas[present], np.linspace(0, 1, parts + 1))
    names, means = [], []
    for low, high in pairwise(edges.tolist()):
        inside = present & (areas >= low) & ((areas < high) | (high == edges[-1]))
        labels = np.where((scored.labels == POSITIVE) & ~inside, UNKNOWN, scored.labels)
        names.append(f"{100 * low:.2g} – {100 * high:.2g} %")
        means.append(_percent_map(scored.scores, labels))
    return dict(zip(_number_repeated(names), means, strict=True))


def map_by_class(scored: GatheredPredictions, order: NDArray[Any], count: int, form: str) -> dict[str, float]:
    """Mean AP in percent of groups of classes, which average to the mAP if they are of equal size.

    Args:
        scored: the predictions.
        order: L, the number that classes are sorted by, ascending.
        count: number of groups.
        form: format of that number in the names of groups.
    """
    means = 100 * group_means(counted_average_precision(scored.scores, scored.labels), order, groups=count)
    members = np.array_split(np.sort(order, kind="stable"), count)
    names = [form.format(part[0]) + " – " + form.format(part[-1]) for part in members]
    return dict(zip(_number_repeated(names), map(float, means), strict=True))


def class_areas(dataset: Dataset, split: str) -> NDArray[np.float64]:
    """The share of each image that each of its classes covers, N×L: from masks, or from boxes if there are none.

    Masks and boxes of one class are added up, to at most 1. NaN where nothing was drawn.
    """
    locations = Locations.read(dataset, split)
    size = len(dataset.split(split))
    marks = locations.of(np.arange(size))
    area = marks.box[:, 2:].prod(1)
    for at, mask in enumerate(marks.masks):
        if mask is not None:
            rle, height, width = mask
            area[at] = masks.area(rle) / (height * width)
    shares: NDArray[np.float64] = np.full((size, len(dataset.classes)), np.nan)
    drawn = area > 0
    shares[marks.image[drawn], marks.label[drawn]] = 0.0
    np.add.at(shares, (marks.image[drawn], marks.label[drawn]), area[drawn])
    np.minimum(shares, 1.0, out=shares)
    return shares


def missing_share(observed: NDArray[np.integer], true: NDArray[np.integer]) -> NDArray[np.float64]:
    """The share of each class's positives that were not annotated; 0 for a class without positives.

    >>> missing_share(np.array([1, 3, 0]), np.array([4, 3, 0]))
    array([0.75, 0.  , 0.  ])
    """
    share: NDArray[np.float64] = np.clip(1 - observed / np.maximum(true, 1), 0, 1)
    share[true == 0] = 0
    return share


def _percent_map(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    values = average_precision(scores, labels)
    return 100 * float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def _number_repeated(names: Sequence[str]) -> list[str]:
    """Names, with their position if another one is the same."""
    return [name if names.count(name) == 1 else f"{name} ({at + 1})" for at, name in enumerate(names)]


def _draw_groups(values: dict[str, dict[str, list[dict[str, float]]]], split: str) -> Figure:
    columns = min(2, len(values))
    lines = -(-len(values) // columns)
    figure, panels = figures.new_panels(4.6 * columns, 3.3 * lines, rows=lines, columns=columns, used=len(values))
    rows = []
    for panel, (group, by_run) in zip(panels, values.items(), strict=True):
        for position, (label, seeds) in enumerate(by_run.items()):
            names = list(seeds[0])
            pairs = [mean_and_deviation([seed[name] for seed in seeds]) for name in names]
            figures.plot_mean_and_band(panel, names, pairs, position, label)
            rows += [
                (group, name, label, nan_to_none(m, 4), nan_to_none(d, 4), len(seeds))
                for name, (m, d) in zip(names, pairs, strict=True)
            ]
        figures.label_panel(panel, "", _AXIS_LABELS[group], f"{split} mAP, percent")
        panel.tick_params(axis="x", labelsize=8.5)
    figures.legend_above(figure, panels[0])
    return report_figure(
        figure,
        "groups",
        "Mean average precision of groups: images by their number of true labels, objects by the share of the image "
        "that they cover, classes by their number of training positives and by the share of positives that is missing.",
        f"{len(values)} panels with one line per method over ordered groups.",
        Table("groups", "mAP of each group.", ("grouped by", "group", "run", "mAP", "deviation", "seeds"), rows),
    )


def _draw_difference(
    predictions: Mapping[str, Sequence[GatheredPredictions]],
    classes: Sequence[str],
    missing: NDArray[np.float64] | None,
    seen: NDArray[np.integer],
) -> Figure:
    """Bars of the difference in average precision between two methods, means over their seeds.

    Args:
        predictions: of both, by name.
        classes: names.
        missing: L, share of each class's positives that were not annotated; None if the truth is unknown.
        seen: L, positives that training saw.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    a, b = predictions
    means = [
        100 * np.mean([average_precision(seed.scores, seed.labels) for seed in seeds], axis=0)
        for seeds in predictions.values()
    ]
    gain = means[1] - means[0]
    order = np.argsort(np.nan_to_num(gain), kind="stable")
    shade = seen.astype(np.float64) if missing is None else 100 * missing
    named = len(classes) <= _MAX_NAMED
    figure, panel = figures.new_figure(max(6.0, min(12.0, 0.28 * len(classes) + 2)), 4.0)
    scale = ScalarMappable(Normalize(float(shade.min()), max(float(shade.max()), float(shade.min()) + 1e-9)), "viridis")
    panel.bar(np.arange(len(order)), gain[order], color=scale.to_rgba(shade[order]), width=0.85)
    panel.axhline(0, color=figures.TEXT, linewidth=0.8)
    figures.label_panel(panel, "", "" if named else "classes, sorted", f"AP of {b} minus {a}, points")
    panel.grid(visible=False, axis="x")
    panel.set_xticks(range(len(order)) if named else [], [classes[c] for c in order] if named else [], rotation=90)
    bar = figure.colorbar(scale, ax=panel, pad=0.01)
    bar.set_label("positives in training" if missing is None else "share of positives missing, percent")
    bar.outline.set_visible(False)
    better = int((gain > 0).sum())
    rows = [
        (classes[c], *(nan_to_none(values[c], 4) for values in (gain, *means, shade)), int(seen[c]))
        for c in order.tolist()
    ]
    columns = ("class", "difference", a, b, "positives" if missing is None else "missing percent", "seen positives")
    return report_figure(
        figure,
        "difference",
        f"Average precision of {b} minus that of {a} for each class: {b} is better on {better} of {len(classes)}. "
        + ("" if missing is None else "Brighter bars are classes with more missing positives."),
        f"Bars of {len(classes)} classes from loss to gain; {better} of them gain.",
        Table("difference", "Average precision of each class, percent.", columns, rows),
    )
