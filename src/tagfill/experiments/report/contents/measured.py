"""Sections that are drawn: learning curves, classes, score distributions, label recovery."""

from __future__ import annotations

import numpy as np

from tagfill.experiments import drawing
from tagfill.experiments.report.contents import figures
from tagfill.experiments.report.contents.looking import EDGES, Look, Part
from tagfill.experiments.report.contents.material import Material
from tagfill.experiments.report.section import Section, Table
from tagfill.training.scored import plain

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
    drawn = drawing.finished(
        figures.curves(lines, best, material.colours()),
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
        (material.data.classes[label], *(plain(float(values[label])) for values in everything.values()))
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
    drawn = drawing.finished(
        figures.class_marks(
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
        picture = figures.distribution(name, look.histograms, legend=number == 0)
        drawn.append(drawing.finished(picture, f"distribution-{number}", caption, alt, data, abreast=3))
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
    drawn = drawing.finished(
        figures.recovery(lines, colours),
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
