"""Figures of the report, narrow enough to be read on a phone.

Sections that are drawn: learning curves, classes, score distributions, label recovery.

Sections of pictures: class maps with the truth, and labels that models believe in although nobody confirmed them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.data import Locations
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.experiments import figures, pictures
from tagfill.experiments.pictures import class_maps
from tagfill.experiments.report.material import Entrant, Material
from tagfill.experiments.report.model_scores import EDGES, Look, Part, Suspect, opened
from tagfill.experiments.report.section import Gallery, Picture, Section, Table
from tagfill.images import encode_jpeg, open_root, thumbnail
from tagfill.io import nan_to_none
from tagfill.labels import POSITIVE, UNKNOWN

WIDTH = 5.2  # inches; a page shows it at about the width of a hand's screen and up to twice that
KINDS = {"observed": "#4477aa", "missed": "#ee6677", "absent": "#8a8f98", "unknown": "#8a8f98"}
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_WORDS = 9.0


def draw_curves(
    lines: Mapping[str, Sequence[Sequence[float]]], best: Mapping[str, int], colours: Mapping[str, str]
) -> Any:
    """Validation mAP by epoch: the mean of each method's seeds, the seeds behind it, a dot at the best epoch."""
    figure, axes = figures.new_figure(WIDTH, 3.6)
    for position, (name, seeds) in enumerate(lines.items()):
        shortest = min(map(len, seeds))
        mean = np.mean([seed[:shortest] for seed in seeds], axis=0)
        style = {"color": colours[name], "linestyle": _DASHES[(position // 5) % len(_DASHES)]}
        if len(seeds) > 1:
            for seed in seeds:
                axes.plot(np.arange(1, len(seed) + 1), seed, linewidth=0.7, alpha=0.35, color=colours[name])
        axes.plot(np.arange(1, shortest + 1), mean, linewidth=1.7, label=figures.words(name), **style)
        if 0 < best.get(name, 0) <= shortest:
            axes.plot([best[name]], [mean[best[name] - 1]], "o", color=colours[name], markersize=4.5)
    axes.set_xlabel("epoch", fontsize=_WORDS)
    axes.set_ylabel("validation mAP", fontsize=_WORDS)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _finish(axes)
    _legend(figure, axes)
    return figure


def draw_class_marks(
    classes: Sequence[str], marks: Mapping[str, NDArray[np.float64]], colours: Mapping[str, str], ceiling: str | None
) -> Any:
    """Average precision of each class: a dot a method, joined by a line, and a stroke at the ceiling."""
    figure, axes = figures.new_figure(WIDTH, 0.9 + 0.23 * len(classes))
    places = np.arange(len(classes))[::-1]
    dots = {name: values for name, values in marks.items() if name != ceiling}
    if len(dots) > 1:
        stacked = np.stack(list(dots.values()))
        axes.hlines(places, np.nanmin(stacked, 0), np.nanmax(stacked, 0), color=figures.TEXT, alpha=0.3, linewidth=2)
    elif dots:
        only = next(iter(dots))
        axes.barh(places, dots[only], color=colours[only], height=0.5, alpha=0.35)
    for name, values in dots.items():
        axes.plot(values, places, "o", color=colours[name], label=figures.words(name), markersize=5.5)
    if ceiling is not None:
        axes.plot(marks[ceiling], places, "|", color=figures.TEXT, label=figures.words(ceiling), markersize=10, mew=1.6)
    axes.set_yticks(places, [figures.words(name) for name in classes])
    axes.set_ylim(-0.8, len(classes) - 0.2)
    axes.set_xlim(right=101)
    axes.set_xlabel("average precision, percent", fontsize=_WORDS)
    _finish(axes, axis="x")
    _legend(figure, axes)
    return figure


def draw_distribution(name: str, shares: Mapping[str, NDArray[np.float64]], *, legend: bool) -> Any:
    """How high labels of each kind score."""
    figure, axes = figures.new_figure(3.4, 2.1)
    for kind, values in shares.items():
        axes.stairs(values, EDGES, color=KINDS[kind], label=kind, linewidth=1.5, fill=False)
        axes.stairs(values, EDGES, color=KINDS[kind], alpha=0.14, fill=True)
    axes.set_yscale("log")
    axes.set_ylim(5e-4, 1.3)
    axes.set_yticks([0.001, 0.01, 0.1, 1], ["0.1 %", "1 %", "10 %", "100 %"])
    axes.minorticks_off()
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability", fontsize=8)
    axes.set_title(figures.words(name), fontsize=10, color=figures.TEXT)
    if legend:
        axes.legend(loc="upper right", frameon=False, labelcolor=figures.TEXT, fontsize=7.5)
    _finish(axes, size=8)
    return figure


def draw_recovery(
    lines: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], colours: Mapping[str, str]
) -> Any:
    """Precision against recall of unobserved labels."""
    figure, axes = figures.new_figure(WIDTH, 3.6)
    for position, (name, (recall, precision)) in enumerate(lines.items()):
        style = _DASHES[(position // 5) % len(_DASHES)]
        shown = {"color": colours[name], "linestyle": style, "label": figures.words(name)}
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
        columns, style = min(4, len(labels)), {"frameon": False, "labelcolor": figures.TEXT, "fontsize": _WORDS}
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, **style)


MOST_CLASSES = 40
_PRECISIONS = (0.9, 0.8, 0.5)


def curves(material: Material) -> Section | None:
    """Validation mAP by epoch; none without a validation split."""
    lines: dict[str, list[list[float]]] = {}
    for entrant in material.entrants:
        seeds = [[line["val_mAP"] for line in run.metrics() if "val_mAP" in line] for run in entrant.runs]
        if all(seeds):
            lines[entrant.name] = seeds
    if not lines:
        return None
    best = {entrant.name: _best_epoch(entrant.run.metrics()) for entrant in material.entrants}
    rows = [
        (name, seed, epoch, value)
        for name, seeds in lines.items()
        for seed, values in enumerate(seeds)
        for epoch, value in enumerate(values, start=1)
    ]
    drawn = figures.finished(
        draw_curves(lines, best, material.colours()),
        "curves",
        "Validation mAP after each epoch; the dot is the epoch that was kept.",
        "Lines of validation mAP by epoch, one for each of " + ", ".join(lines) + ".",
        Table("curves", "Validation mAP by epoch.", ("method", "seed", "epoch", "mAP"), rows),
    )
    ends = [(name, values[0][0], max(values[0]), best[name], values[0][-1]) for name, values in lines.items()]
    table = Table(
        "epochs",
        "Of the first seed: validation mAP after the first epoch, the best and the last.",
        ("method", "first", "best", "best epoch", "last"),
        ends,
        formats={"first": ".1f", "best": ".1f", "last": ".1f"},
        swatches=material.colours(),
    )
    return Section("curves", "Learning curves", figures=(drawn,), tables=(table,))


def classes(material: Material, looks: dict[str, Look]) -> Section:
    """Average precision of each class, worst loss against the ceiling first."""
    shown = [entrant for entrant in (material.floor, material.best) if entrant is not None]
    ceiling = material.ceiling
    marks = {entrant.name: 100 * looks[entrant.name].average_precision for entrant in shown}
    if ceiling is not None and ceiling.name not in marks:
        marks[ceiling.name] = 100 * looks[ceiling.name].average_precision
    best = looks[material.best.name].average_precision
    against = looks[ceiling.name].average_precision if ceiling is not None and ceiling is not material.best else None
    order = np.argsort(best if against is None else best - against, kind="stable")
    order = order[~np.isnan(best[order])]
    few = order[:MOST_CLASSES]
    words = "lowest first" if against is None else f"largest loss of {material.best.name} against complete labels first"
    everything = {entrant.name: 100 * looks[entrant.name].average_precision for entrant in material.entrants}
    rows = [
        (material.data.classes[label], *(nan_to_none(float(values[label])) for values in everything.values()))
        for label in order.tolist()
    ]
    table = Table(
        "classes",
        f"Average precision of each class on `{material.split}`, in percent, first seed; {words}.",
        ("class", *everything),
        rows,
        formats=dict.fromkeys(everything, ".1f"),
    )
    left_out = len(order) - len(few)
    drawn = figures.finished(
        draw_class_marks(
            [material.data.classes[label] for label in few.tolist()],
            {name: values[few] for name, values in marks.items()},
            material.colours(),
            None if ceiling is None or len(marks) == 1 else ceiling.name,
        ),
        "classes-drawn",
        f"Average precision of each class, {words}" + (f"; {left_out:,} more are left out." if left_out else "."),
        "A row for each class with the average precision of " + ", ".join(marks) + ".",
    )
    return Section("classes", "Classes", figures=(drawn,), tables=(table,))


def distributions(material: Material, looks: dict[str, Look], train: Part) -> Section:
    """How high each model scores training labels that were observed, missed, or are absent."""
    kinds = {
        "observed": "observed: given as present",
        "missed": "missed: present, but nobody said so",
        "absent": "absent" if material.truth is None else "absent in truth",
        "unknown": "unknown: nobody looked",
    }
    occurring = list(next(iter(looks.values())).histograms)
    words = (
        "Probabilities that models give to labels of training images: " + "; ".join(kinds[k] for k in occurring) + ".",
        "A method that has learnt more than it was told gives missed labels the scores of observed ones. Shares are on "
        "a logarithmic axis.",
        *_sampled(train),
    )
    drawn = []
    for number, (name, look) in enumerate(looks.items()):
        columns = ("from", "to", *look.histograms)
        rows = np.column_stack([EDGES[:-1], EDGES[1:], *look.histograms.values()]).tolist()
        places = {"from": ".3f", "to": ".3f"}
        data = Table(f"distribution-{number}", f"Shares of {name}.", columns, rows, formats=places)
        alt = f"Histogram of the probabilities of {', '.join(occurring)} labels by {name}."
        means = {kind: float(shares @ (EDGES[:-1] + EDGES[1:])) / 2 for kind, shares in look.histograms.items()}
        caption = "On average about " + ", ".join(f"{mean:.2f} ({kind})" for kind, mean in means.items()) + "."
        picture = draw_distribution(name, look.histograms, legend=number == 0)
        drawn.append(figures.finished(picture, f"distribution-{number}", caption, alt, data, abreast=3))
    return Section("scores", "Score distributions", words, figures=tuple(drawn))


def recovery(material: Material, looks: dict[str, Look], train: Part) -> Section | None:
    """How many missing labels each model finds; none where the truth is not known or nothing is missing."""
    found = {name: look.recovery for name, look in looks.items() if look.recovery is not None}
    if not found:
        return None
    missing = next(iter(found.values())).missing
    words = (
        f"Training images lack {missing:,} labels that are present. If labels that nobody looked at are called present "
        "in the order of their scores, how many of the missing ones are found, and how many of the calls are right?",
        "A model that was trained on complete labels has seen the answers."
        if material.ceiling is not None
        else "The truth was not shown to any model.",
        *_sampled(train),
    )
    colours = material.colours()
    lines = {name: (one.recall, one.precision) for name, one in found.items()}
    rows = [(name, *point) for name, line in lines.items() for point in np.column_stack(line).tolist()]
    drawn = figures.finished(
        draw_recovery(lines, colours),
        "recovery",
        "Precision and recall of missing labels: higher and further right is better.",
        "Lines of precision against recall of missing labels, one for each of " + ", ".join(found) + ".",
        Table("recovery", "Precision and recall.", ("method", "recall", "precision"), rows),
    )
    shares = [f"found at {precision:.0%} right" for precision in _PRECISIONS]
    table = Table(
        "recovered",
        "Average precision over all unobserved labels, and the share of missing labels found at a precision.",
        ("method", "average precision", *shares),
        [
            (name, one.average_precision, *(one.recall_at(precision) for precision in _PRECISIONS))
            for name, one in sorted(found.items(), key=lambda pair: -pair[1].average_precision)
        ],
        formats={"average precision": ".1%", **dict.fromkeys(shares, ".0%")},
        bars=("average precision",),
        swatches=colours,
    )
    return Section("recovery", "Label recovery", words, figures=(drawn,), tables=(table,))


def _best_epoch(lines: list[dict[str, object]]) -> int:
    """The number, over all stages, of the last epoch that was the best so far."""
    return max((number for number, line in enumerate(lines, start=1) if line.get("best")), default=0)


def _sampled(part: Part) -> tuple[str, ...]:
    if len(part.index) == part.size:
        return ()
    return (f"Of {part.size:,} training images, {len(part.index):,} at even distances were looked at.",)


_SIDE = 240  # pixels of a picture's longest side
_MOST_COLUMNS = 9
Maps = tuple[NDArray[np.float32], NDArray[np.float32]]


def heatmaps(material: Material) -> Section | None:
    """The first images of some classes with what each model looks at; none where no head has class maps."""
    data, split = material.truth or material.data, material.split
    places = Locations.read(data, split)
    chosen = pictures.example_pairs(data, split)
    index = np.array([image for image, _ in chosen], dtype=np.int64)
    found: dict[str, Maps] = {}
    for entrant in material.entrants[:_MOST_COLUMNS]:
        maps = _maps(entrant, material.data, split, index)
        if maps is not None:
            found[entrant.name] = maps
    if not found or not chosen:
        return None
    rows = []
    for position, (image, label) in enumerate(chosen):
        picture, name = photograph(data, split, image), data.classes[label]
        marks = places.of(np.array([image]))
        truth = pictures.outlined(picture, marks.box[marks.label == label])
        cells = [Picture(encode_jpeg(truth), f"An image with {name} marked.")]
        for entrant_name, (values, shares) in found.items():
            over = pictures.overlay_class_map(picture, values[position, label])
            alt = f"The class map of {name} by {entrant_name}."
            cells.append(Picture(encode_jpeg(over), alt, f"{shares[position, label]:.0%}"))
        rows.append((name, cells))
    words = (
        f"The first images of `{split}` that show a class, not chosen by how good the maps are. Bright is where a "
        "model sees the class; below it the probability that it gives to the class. Each map is stretched from its "
        "lowest to its highest value.",
    )
    gallery = Gallery("Class maps", "Boxes or dots mark the truth.", rows, ("truth", *found))
    return Section("maps", "Class maps", words, galleries=(gallery,))


def suspects(material: Material, looks: dict[str, Look]) -> Section | None:
    """Labels that the best model believes in most and nobody confirmed."""
    look, name = looks[material.best.name], material.best.name
    galleries = []
    if look.suspects:
        known = [one for one in look.suspects if one.truth != UNKNOWN]
        right = sum(one.truth == POSITIVE for one in known)
        judged = f" Of these {len(known)}, {right} are present in truth." if known else " The truth is not known."
        caption = f"Training labels that nobody looked at and `{name}` is surest of, one an image.{judged}"
        galleries.append(_tiles(material, "train", "Probably missing labels", caption, look.suspects))
    if look.mistakes:
        caption = (
            f"Labels of `{material.split}` that are said to be absent and `{name}` is surest of, one an image: its "
            "worst mistakes, or labels that are wrong."
        )
        galleries.append(_tiles(material, material.split, "Said to be absent", caption, look.mistakes[:6]))
    if not galleries:
        return None
    return Section("suspects", "Probably missing labels", galleries=tuple(galleries))


def _tiles(material: Material, split: str, name: str, caption: str, chosen: Sequence[Suspect]) -> Gallery:
    data = material.truth or material.data
    places = Locations.read(data, split)
    tiles = []
    for one in chosen:
        label, marks = data.classes[one.label], places.of(np.array([one.index]))
        picture = pictures.outlined(photograph(data, split, one.index), marks.box[marks.label == one.label])
        right = None if one.truth == UNKNOWN else one.truth == POSITIVE
        told = "" if right is None else ", in truth present" if right else ", in truth absent"
        alt = f"The image {data.names(data.split(split)[[one.index]])[0]}, in which {label} is suspected."
        tiles.append(Picture(encode_jpeg(picture), alt, f"{label}, {one.probability:.1%}{told}", right))
    return Gallery(name, caption, [("", tiles)])


def photograph(data: Dataset, split: str, position: int) -> Image.Image:
    """An image of a split, no larger than it is shown."""
    return thumbnail(open_root(data.root), data.names(data.split(split)[[position]])[0], _SIDE)


def _maps(entrant: Entrant, data: Dataset, split: str, index: NDArray[np.int64]) -> Maps | None:
    """Class maps and probabilities of some images, or nothing of a head that has none."""
    trained = opened(entrant, data, maps=True)
    try:
        trained.model.check_use(maps=True)
    except TagfillError:
        return None
    return class_maps(trained, split, index)
