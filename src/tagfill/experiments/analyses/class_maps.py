"""Class maps of several models over the same images, with a column for one of them boosted at inference alone.

Maps are shown as their model averages them, boosted where it boosts, and as probabilities of cells, so that colours
mean the same in every column: false negatives make a map darker and leave its shape (Kim et al., CVPR 2023, Fig. 4).


Two models' class maps compared, cell by cell: do they rank cells alike, and how high do they go?

    agreement    Spearman's ρ of the two maps, for each image and label that is present
    control      the same of the first map and a centred two-dimensional Gaussian; ranks do not depend on its width,
                 only on the distance from the centre
    attribution  mean of the highest and of the lowest 5 % of a map's cells, at least one cell

Kim et al., Bridging the Gap between Model Explanations in Partially Annotated Multi-label Classification, CVPR 2023,
Fig. 2.

Do partial labels change where a model looks, or how much it says there?

False negatives leave the order of a class map's cells nearly as it is, and shrink the high ones of present labels,
which is what a boost mends. Kim et al., Bridging the Gap between Model Explanations in Partially Annotated Multi-label
Classification, CVPR 2023, Figs. 2 and 4. What is measured is in `map_comparison`.

Where attention goes.

query   the mean over heads of the attention of a label's query to the cells, in the last decoder layer
tscam   the class token's attention A, the class map S, and their product A · S

Query2Label (Liu et al., 2021) shows the first, TS-CAM (Gao et al., ICCV 2021) the second. Attention of a backbone needs
its images; that of the `query` head also comes from cached features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.contract import Batch, Prediction
from tagfill.errors import TagfillError
from tagfill.experiments import figures, pictures
from tagfill.experiments.analyses import subjects
from tagfill.experiments.analyses.subjects import Question, Subject, file_name
from tagfill.experiments.pictures import class_maps
from tagfill.experiments.report import Figure, Section, Table
from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.metrics import rank_correlation
from tagfill.models.heads import boost as boosted
from tagfill.models.heads import coupled
from tagfill.training.evaluation import LoadedModel


def picture_rows(subjects: Sequence[Subject], split: str, rows: int, boost: float) -> Figure | None:
    """Image, and the maps of each model; None where the images are not at hand.

    Args:
        subjects: the first has complete labels, the second is also shown boosted.
        split: of the images.
        rows: how many.
        boost: α for the second one.
    """
    data = subjects[0].dataset
    chosen = pictures.example_pairs(data, split, rows)
    index = np.array([image for image, _ in chosen], dtype=np.int64)
    photos = pictures.example_photos(data, split, index)
    if not chosen or photos is None:
        return None
    columns: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
    for number, subject in enumerate(subjects):
        columns.setdefault(subject.label, _seen(subject.trained(maps=True), split, index))
        if number == 1:
            columns[f"{subject.label}, boosted"] = _seen(subject.trained(maps=True, boost=boost), split, index)
    lines, numbers = [], []
    names = data.names(data.split(split)[index])
    for position, (_, label) in enumerate(chosen):
        maps = [
            pictures.overlay_class_map(photos[position], m[position, label], scaling="sigmoid")
            for m, _ in columns.values()
        ]
        scores = [float(score[position, label]) for _, score in columns.values()]
        lines.append(pictures.Row(data.classes[label], [photos[position], *maps], ["", *(f"{s:.3f}" for s in scores)]))
        numbers.append((names[position], data.classes[label], *(round(s, 6) for s in scores)))
    picture = pictures.picture_grid(["image", *columns], lines, notes="above", side=192)
    return Figure(
        "maps",
        f"Class maps as probabilities of cells, and above each the model's score for the label. The column "
        f"'boosted' is the same model with α = {boost:g} at inference alone. The images are the first of {split} that "
        "show a new class.",
        f"{len(lines)} images beside the maps of {len(columns)} models.",
        pictures.picture_png(picture),
        data=Table("maps", "Scores of the labels that are shown.", ("image", "label", *columns), numbers),
    )


def _seen(
    trained: LoadedModel, split: str, index: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Maps as the model averages them, and probabilities, of some images."""
    maps, scores = class_maps(trained, split, index)
    head = trained.model.head.options
    slope = head.get("boost", 1.0) if head.get("boost_eval", True) else 1.0
    return boosted(torch.from_numpy(maps), slope, head.get("boost_from", 0.0)).numpy(), scores


SHARE = 0.05


@dataclass(frozen=True)
class Measured:
    """Two models' maps compared.

    Attributes:
        agreement: n, ρ of the two models for each present label.
        control: n, ρ of the first model and the Gaussian.
        attribution: (`top` or `bottom`, `positive` or `negative`, model 0 or 1) → one value for each such label.
    """

    agreement: NDArray[np.float64]
    control: NDArray[np.float64]
    attribution: dict[tuple[str, str, int], NDArray[np.float64]]


def measure(full: Subject, partial: Subject, split: str, images: int) -> Measured:
    """Look at the same images with both models."""
    size = len(full.dataset.split(split))
    index = np.unique(np.linspace(0, size - 1, min(images, size)).astype(np.int64))
    if full.dataset.names(full.dataset.split(split)) != partial.dataset.names(partial.dataset.split(split)):
        raise TagfillError(f"{full.run.folder} and {partial.run.folder} have other images in split '{split}'.")
    both = zip(_maps(full, split, index), _maps(partial, split, index), strict=True)
    correlations: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    ends: dict[tuple[str, str, int], list[NDArray[np.float64]]] = {}
    for (batch, ours), (other, theirs) in both:
        assert ours.maps is not None
        assert theirs.maps is not None
        maps = [each.maps.float().numpy(force=True) for each in (ours, theirs) if each.maps is not None]
        if maps[0].shape != maps[1].shape or not batch.index.equal(other.index):
            raise TagfillError("The two models look at images in different grids; train both at the same size.")
        grid = maps[0].shape[2:]
        labels = batch.labels.numpy(force=True)
        for kind, value in (("positive", POSITIVE), ("negative", NEGATIVE)):
            cells = [each[labels == value].reshape(-1, grid[0] * grid[1]) for each in maps]
            for model, each in enumerate(cells):
                low, high = extremes(each)
                ends.setdefault(("top", kind, model), []).append(high)
                ends.setdefault(("bottom", kind, model), []).append(low)
            if value == POSITIVE:
                control = rank_correlation(cells[0], centred_gaussian(*grid).reshape(1, -1))
                correlations.append((rank_correlation(cells[0], cells[1]), control))
    joined = [np.concatenate(each) for each in zip(*correlations, strict=True)]
    return Measured(joined[0], joined[1], {key: np.concatenate(parts) for key, parts in ends.items()})


def centred_gaussian(height: int, width: int, sigma: float = 0.25) -> NDArray[np.float64]:
    """A Gaussian at the middle of a grid, H×W, in coordinates relative to the image.

    Cells that are equally far from the centre have equal values, whatever their sums round to.
    """
    down = ((np.arange(height) + 0.5) / height - 0.5) ** 2
    across = ((np.arange(width) + 0.5) / width - 0.5) ** 2
    return np.exp(-np.round(down[:, None] + across, 12) / (2 * sigma**2))


def extremes(cells: NDArray[np.floating], share: float = SHARE) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means of the lowest and of the highest cells of each map.

    Args:
        cells: n×m.
        share: of the cells, rounded, at least one.

    >>> extremes(np.array([[3.0, 1.0, 2.0]]))
    (array([1.]), array([3.]))
    """
    count = max(1, round(share * cells.shape[1]))
    ordered = np.sort(cells, axis=1).astype(np.float64)
    return ordered[:, :count].mean(axis=1), ordered[:, -count:].mean(axis=1)


def _maps(subject: Subject, split: str, index: NDArray[np.int64]) -> Iterator[tuple[Batch, Prediction]]:
    return subject.trained(maps=True).predict(split, index, maps=True)


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
    figure, panel = figures.new_figure(6.4, 3.6)
    edges = np.linspace(-1, 1, 41)
    rows = []
    named = {f"{names[0]} and {names[1]}": found.agreement, f"{names[0]} and a centred Gaussian": found.control}
    for position, (name, values) in enumerate(named.items()):
        known = values[~np.isnan(values)]
        counts, _ = np.histogram(known, bins=edges)
        share = 100 * counts / max(len(known), 1)
        panel.stairs(share, edges, fill=True, color=figures.color(position), alpha=0.45, label=name)
        panel.stairs(share, edges, color=figures.color(position), linewidth=1.4)
        rows += [
            (name, round(float(low), 4), round(float(high), 4), int(count))
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    subjects.dress(panel, "", "Spearman correlation of class maps", "percent of present labels")
    panel.set_xlim(-1, 1)
    subjects.legend(figure, panel, columns=1)
    return figures.finished(
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
    figure, panels = figures.new_panels(8.6, 3.6, columns=2)
    for panel, end in zip(panels, ("top", "bottom"), strict=True):
        for place, kind in enumerate(("positive", "negative")):
            for model in (0, 1):
                values = found.attribution.get((end, kind, model), np.empty(0))
                if len(values):
                    _box(panel, place + (model - 0.5) * 0.36, values, figures.color(model))
        panel.set_xticks([0, 1], ["positive labels", "negative labels"])
        panel.set_xlim(-0.6, 1.6)
        which = "highest" if end == "top" else "lowest"
        subjects.dress(panel, f"{which} {SHARE:.0%} of cells", "", "mean attribution score")
        panel.grid(visible=False, axis="x")
    for model in (0, 1):
        panels[0].plot([], [], color=figures.color(model), linewidth=6, alpha=0.6, label=names[model])
    subjects.legend(figure, panels[0])
    columns = ("boxes", "labels", "mean", *(f"{quantile} %" for quantile in _QUANTILES))
    return figures.finished(
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
        medianprops={"color": figures.TEXT, "linewidth": 1.6},
        whiskerprops={"color": colour, "linewidth": 1.4},
        capprops={"color": colour, "linewidth": 1.4},
        manage_ticks=False,
    )


Maps = dict[str, NDArray[np.float32]]  # column → n×H×W, one label an image


def attention(question: Question, *, split: str = "test", images: int = 5) -> Section:
    """What the query head attends to for a label; attention, class map and their product of the tscam head.

    Args:
        question: runs with the head `query` or `tscam`.
        split: of the images.
        images: examples, each with one label.
    """
    figures = []
    for label in question.labels:
        figures.append(_drawn(question.seeds_of(label)[0], split, images))
    text = f"The images are the first of {split} that show a new class; numbers are the scores of that class."
    facts = {label: {"images": images} for label in question.labels}
    return Section("attention", "Attention", (text,), tuple(figures), facts=facts)


def _drawn(subject: Subject, split: str, count: int) -> Figure:
    chosen = pictures.example_pairs(subject.dataset, split, count)
    index = np.array([image for image, _ in chosen], dtype=np.int64)
    label = np.array([label for _, label in chosen], dtype=np.int64)
    photos = pictures.example_photos(subject.dataset, split, index)
    if photos is None:
        raise TagfillError(f"The images of {subject.dataset.name} are not at hand, and attention is shown over them.")
    maps, scores = looks(subject, split, index, label)
    names = subject.dataset.names(subject.dataset.split(split)[index])
    rows, numbers = [], []
    for at, photo in enumerate(photos):
        name = subject.dataset.classes[label[at]]
        shown = [pictures.overlay_class_map(photo, values[at]) for values in maps.values()]
        rows.append(pictures.Row(name, [photo, *shown], [f"{scores[at]:.3f}"]))
        numbers += [(names[at], name, round(float(scores[at]), 6), column, *peak(v[at])) for column, v in maps.items()]
    title = f"attention-{file_name(subject.label)}"
    return Figure(
        title,
        f"{subject.label} with the {subject.run.recipe.head} head; each map from its lowest to its highest value.",
        f"{len(rows)} images beside {', '.join(maps)}.",
        pictures.picture_png(pictures.picture_grid(["image", *maps], rows, side=192)),
        data=Table(title, "Where maps are highest.", ("image", "label", "score", "map", "x", "y"), numbers),
    )


def looks(
    subject: Subject, split: str, index: NDArray[np.int64], label: NDArray[np.int64]
) -> tuple[Maps, NDArray[np.float32]]:
    """Attention of some images for one label each, and the scores of those labels."""
    own = subject.run.recipe.head == "query"
    trained = subject.trained() if own else LoadedModel.open(subject.run, subject.dataset, maps=True)
    maps: dict[str, list[NDArray[np.float32]]] = {}
    scores = []
    done = 0
    for batch, prediction in trained.predict(split, index, maps=not own, attention=True):
        assert prediction.attention is not None
        which = label[done : done + len(batch.index)]
        every = np.arange(len(which))
        done += len(which)
        found = {"attention": prediction.attention}
        if own:
            found = {"attention, mean over heads": prediction.attention.mean(1)[every, which]}
        elif prediction.maps is not None:
            found |= {"class map": prediction.maps[every, which], "product": coupled(prediction)[every, which]}
        for name, values in found.items():
            maps.setdefault(name, []).append(values.float().numpy(force=True))
        scores.append(prediction.logits.sigmoid().numpy(force=True)[every, which])
    return {name: np.concatenate(values) for name, values in maps.items()}, np.concatenate(scores)


def peak(values: NDArray[np.floating]) -> tuple[float, float]:
    """The middle of the highest cell, relative to the image.

    >>> peak(np.array([[0.0, 0.0], [0.0, 1.0]]))
    (0.75, 0.75)
    """
    row, column = np.unravel_index(int(np.argmax(values)), values.shape)
    return round((int(column) + 0.5) / values.shape[1], 4), round((int(row) + 0.5) / values.shape[0], 4)
