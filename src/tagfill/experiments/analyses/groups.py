"""Where a method wins and loses: mAP of groups of images, of objects and of classes.

labels      images with exactly 1, 2, 3, 4 and with 5 or more true labels
area        positives by the share of the image that they cover, in thirds; other positives of the class are left out,
            negatives are the same for all thirds
frequency   classes by their number of positives that training saw, rarest first; of several datasets, the first that
            was simulated
missing     classes by the share of their training positives that nobody annotated, least first

Two methods are also compared class by class, coloured by what is missing (Sharma et al., Fig. 5; appendix D of Verelst
et al., WACV 2023, has areas).


Two methods class by class: the difference of their average precision, coloured by what is missing of each class.

Sharma et al., Fig. 5: classes from the largest loss to the largest gain; if those at the right are bright, a method
wins where labels are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.data import Locations
from tagfill.dataset import Dataset, masks
from tagfill.experiments import figures
from tagfill.experiments.analyses import subjects
from tagfill.experiments.analyses.subjects import Question, mean_and_deviation
from tagfill.experiments.report import Figure, Section, Table
from tagfill.io import nan_to_none
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.metrics import GatheredPredictions, average_precision, by_label_count, group_means
from tagfill.training.evaluation import has_extents

Values = dict[str, float]
_NAMES = {
    "labels": "true labels of an image",
    "area": "share of the image that is covered",
    "frequency": "positives of a class in training",
    "missing": "share of a class's positives that is missing",
}


def groups(question: Question, *, split: str = "test", classes: int = 5) -> Section:
    """Scores by number of true labels, object area, class frequency and share of missing labels; classes of two runs.

    Args:
        question: the runs.
        split: to score.
        classes: groups of classes, from the rarest to the most frequent.
    """
    first = question.subjects[0].dataset
    count = min(classes, len(first.classes))
    found = question.predictions(split)
    learner = next((subject for subject in question.subjects if subject.dataset.truth is not None), None)
    seen = (first if learner is None else learner.dataset).labels("train").positives
    missing = None if learner is None else missing_share(seen, learner.truth().positives)
    measures: dict[str, Callable[[GatheredPredictions], Values]] = {"labels": by_labels}
    if has_extents(first, split):
        measures["area"] = partial(by_area, areas=covered(first, split))
    measures["frequency"] = partial(by_class, order=seen, count=count, shown="{:,.0f}")
    if missing is not None:
        measures["missing"] = partial(by_class, order=missing, count=count, shown="{:.0%}")
    values = {
        group: {label: [measure(scored) for scored in seeds] for label, seeds in found.items()}
        for group, measure in measures.items()
    }
    figures = [_drawn(values, split)]
    facts = {
        group: {
            label: {name: nan_to_none(mean_and_deviation([seed[name] for seed in seeds])[0], 2) for name in seeds[0]}
            for label, seeds in each.items()
        }
        for group, each in values.items()
    }
    if len(found) == 2:
        figures.append(difference(found, first.classes, missing, seen))
    text = f"Average precision on {split}, over groups of images, of objects and of classes."
    return Section("groups", "Groups of images and classes", (text,), tuple(figures), facts=facts)


def by_labels(scored: GatheredPredictions, most: int = 5) -> Values:
    """The mAP in percent over images with each number of true labels."""
    rows = by_label_count(scored.labels, most)
    return {name: _mean(scored.scores[index], scored.labels[index]) for name, index in rows.items() if len(index)}


def by_area(scored: GatheredPredictions, areas: NDArray[np.floating], parts: int = 3) -> Values:
    """The mAP in percent where positives of another size are left out.

    Args:
        scored: the predictions.
        areas: N×L, share of the image that a class covers; NaN where that is not known.
        parts: groups of as many pairs of image and class.
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
        means.append(_mean(scored.scores, labels))
    return {_distinct(names, at): mean for at, mean in enumerate(means)}


def by_class(scored: GatheredPredictions, order: NDArray[Any], count: int, shown: str) -> Values:
    """Mean AP in percent of groups of classes, ascending by a number of each class."""
    means = 100 * group_means(average_precision(scored.scores, scored.labels), order, groups=count)
    members = np.array_split(np.sort(order, kind="stable"), count)
    names = [shown.format(part[0]) + " – " + shown.format(part[-1]) for part in members]
    return {_distinct(names, at): float(mean) for at, mean in enumerate(means)}


def covered(dataset: Dataset, split: str) -> NDArray[np.float64]:
    """The share of each image that each of its classes covers: masks where there are any, else boxes; N×L.

    Masks and boxes of one class are added up, to 1 at most. NaN where nothing was drawn.
    """
    places = Locations.read(dataset, split)
    size = len(dataset.split(split))
    marks = places.of(np.arange(size))
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
    """The share of each class's positives that nobody annotated; 0 for a class without any.

    >>> missing_share(np.array([1, 3, 0]), np.array([4, 3, 0]))
    array([0.75, 0.  , 0.  ])
    """
    share: NDArray[np.float64] = np.clip(1 - observed / np.maximum(true, 1), 0, 1)
    share[true == 0] = 0
    return share


def _mean(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    values = average_precision(scores, labels)
    return 100 * float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def _distinct(names: Sequence[str], at: int) -> str:
    """A name, numbered where another one is the same."""
    return names[at] if list(names).count(names[at]) == 1 else f"{names[at]} ({at + 1})"


def _drawn(values: dict[str, dict[str, list[Values]]], split: str) -> Figure:
    columns = min(2, len(values))
    lines = -(-len(values) // columns)
    figure, panels = figures.new_panels(4.6 * columns, 3.3 * lines, rows=lines, columns=columns, used=len(values))
    rows = []
    for panel, (group, found) in zip(panels, values.items(), strict=True):
        for position, (label, seeds) in enumerate(found.items()):
            names = list(seeds[0])
            pairs = [mean_and_deviation([seed[name] for seed in seeds]) for name in names]
            subjects.line(panel, names, pairs, position, label)
            rows += [
                (group, name, label, nan_to_none(m, 4), nan_to_none(d, 4), len(seeds))
                for name, (m, d) in zip(names, pairs, strict=True)
            ]
        subjects.dress(panel, "", _NAMES[group], f"{split} mAP, percent")
        panel.tick_params(axis="x", labelsize=8.5)
    subjects.legend(figure, panels[0])
    return figures.finished(
        figure,
        "groups",
        "Mean average precision of groups. Images are grouped by how many labels they truly have, objects by how much "
        "of the image they cover, classes by how often training saw them and by how much of them is missing.",
        f"{len(values)} panels of lines over ordered groups, a line a method.",
        Table("groups", "mAP of each group.", ("grouped by", "group", "run", "mAP", "deviation", "seeds"), rows),
    )


_NAMED = 60  # more classes than that have no room for their names


def difference(
    found: Mapping[str, Sequence[GatheredPredictions]],
    classes: Sequence[str],
    missing: NDArray[np.float64] | None,
    seen: NDArray[np.integer],
) -> Figure:
    """Bars of the difference in average precision of two methods, means over their seeds.

    Args:
        found: predictions of both, by name.
        classes: names.
        missing: L, share of each class's positives that nobody annotated; None where the truth is not known.
        seen: L, positives that training saw.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    (a, first), (b, second) = found.items()
    means = [100 * np.mean([average_precision(s.scores, s.labels) for s in seeds], axis=0) for seeds in (first, second)]
    gain = means[1] - means[0]
    order = np.argsort(np.nan_to_num(gain), kind="stable")
    shade = seen.astype(np.float64) if missing is None else 100 * missing
    named = len(classes) <= _NAMED
    figure, panel = figures.new_figure(max(6.0, min(12.0, 0.28 * len(classes) + 2)), 4.0)
    scale = ScalarMappable(Normalize(float(shade.min()), max(float(shade.max()), float(shade.min()) + 1e-9)), "viridis")
    panel.bar(np.arange(len(order)), gain[order], color=scale.to_rgba(shade[order]), width=0.85)
    panel.axhline(0, color=figures.TEXT, linewidth=0.8)
    subjects.dress(panel, "", "" if named else "classes, sorted", f"AP of {b} minus {a}, points")
    panel.grid(visible=False, axis="x")
    panel.set_xticks(range(len(order)) if named else [], [classes[c] for c in order] if named else [], rotation=90)
    bar = figure.colorbar(scale, ax=panel, pad=0.01)
    bar.set_label("positives in training" if missing is None else "share of positives missing, percent")
    bar.outline.set_visible(False)
    better = int((gain > 0).sum())
    rows = [
        (
            classes[c],
            nan_to_none(gain[c], 4),
            nan_to_none(means[0][c], 4),
            nan_to_none(means[1][c], 4),
            nan_to_none(shade[c], 4),
            int(seen[c]),
        )
        for c in order.tolist()
    ]
    columns = ("class", "difference", a, b, "positives" if missing is None else "missing percent", "seen positives")
    return figures.finished(
        figure,
        "difference",
        f"Average precision of {b} minus that of {a}, class by class: {b} is better on {better} of {len(classes)}. "
        + ("" if missing is None else "The brighter, the more of a class's positives nobody annotated."),
        f"Bars of {len(classes)} classes from loss to gain; {better} of them gain.",
        Table("difference", "Average precision of each class, percent.", columns, rows),
    )
