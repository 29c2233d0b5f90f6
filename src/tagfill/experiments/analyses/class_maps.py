"""Class maps and attention: do partial labels change where a model looks, or how much it sees there?

`cam-agreement` compares the class maps of two models cell by cell:

    agreement    Spearman's ρ of the two maps, for each image and present label
    control      the same for the first map and a centered two-dimensional Gaussian; ranks do not depend on its width,
                 only on the distance from the center
    attribution  mean of the highest and of the lowest 5% of a map's cells, at least one cell

False negatives hardly change the order of a class map's cells, but shrink the high values of present labels, which a
boost repairs. Maps are pictured as probabilities of cells, boosted if their model boosts, so that colors mean the same
in every column. Kim et al., Bridging the Gap between Model Explanations in Partially Annotated Multi-label
Classification, CVPR 2023, Figs. 2 and 4.

`attention` shows what a model attends to:

    query   attention of a label's query to the cells in the last decoder layer, mean over heads
    tscam   the class token's attention A, the class map S, and their product A · S

Query2Label (Liu et al., 2021) shows the first, TS-CAM (Gao et al., ICCV 2021) the second. Attention of a backbone needs
images; that of the `query` head also works on cached features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill import figures
from tagfill.errors import TagfillError
from tagfill.experiments import pictures
from tagfill.experiments.analyses.inputs import AnalysisInput, AnalyzedRun, file_name
from tagfill.experiments.report import Figure, Section, Table
from tagfill.experiments.report.section import report_figure
from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.metrics import rank_correlation
from tagfill.models.heads import boost as boost_maps
from tagfill.models.heads import coupled
from tagfill.probabilities import probabilities
from tagfill.training.evaluation import LoadedModel

SHARE = 0.05  # of the cells, for attribution
_QUANTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class MapComparison:
    """The class maps of two models compared.

    Attributes:
        agreement: n, ρ of the two models for each present label.
        control: n, ρ of the first model and the Gaussian.
        attribution: (`top` or `bottom`, `positive` or `negative`, model 0 or 1) → one value for each such label.
    """

    agreement: NDArray[np.float64]
    control: NDArray[np.float64]
    attribution: dict[tuple[str, str, int], NDArray[np.float64]]


def analyze_cam_agreement(
    inputs: AnalysisInput, *, split: str = "test", images: int = 5000, rows: int = 5, boost: float = 5.0
) -> Section:
    """Class maps of a model from complete labels and of one from partial labels: agreement and attribution scores.

    Args:
        inputs: the run with complete labels, the run with partial labels, and others that are only pictured.
        split: of the images.
        images: maximum number of images, evenly spaced.
        rows: number of pictured images.
        boost: α for pictures of the second run boosted only at inference.
    """
    if len(inputs.runs) < 2:
        raise TagfillError("cam-agreement compares two runs: first the run with complete labels, then another.")
    full, partial = inputs.runs[:2]
    names = (full.label, partial.label if partial.label != full.label else f"{partial.label} (second)")
    comparison = compare_maps(full, partial, split, images)
    quantiles = _attribution_quantiles(comparison, names)
    drawn = [_draw_agreement(comparison, names), _draw_attribution(comparison, names, quantiles)]
    maps = _picture_maps(inputs.runs, split, rows, boost)
    drawn += [] if maps is None else [maps]
    medians = {
        key: round(float(np.nanmedian(values)), 4)
        for key, values in (("agreement", comparison.agreement), ("control", comparison.control))
    }
    text = (
        f"For {len(comparison.agreement):,} present labels of {split}, the median rank correlation between the class "
        f"maps of {names[1]} and {names[0]} is {medians['agreement']:.2f}; for a Gaussian at the center it is "
        f"{medians['control']:.2f}."
    )
    missing = () if maps else ("The images are not available, so no class maps are shown.",)
    facts = {"median": medians, "attribution": {row[0]: row[1:] for row in quantiles}}
    return Section("cam-agreement", "Agreement of class maps", (text, *missing), tuple(drawn), facts=facts)


def compare_maps(full: AnalyzedRun, partial: AnalyzedRun, split: str, images: int) -> MapComparison:
    """Compare the class maps of two models for the same images."""
    size = len(full.dataset.split(split))
    index = np.unique(np.linspace(0, size - 1, min(images, size)).astype(np.int64))
    if full.dataset.names(full.dataset.split(split)) != partial.dataset.names(partial.dataset.split(split)):
        raise TagfillError(f"{full.run.folder} and {partial.run.folder} have different images in split '{split}'.")
    predictions = [run.load_model(maps=True).predict(split, index, maps=True) for run in (full, partial)]
    correlations: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    ends: dict[tuple[str, str, int], list[NDArray[np.float64]]] = {}
    for (batch, first), (other, second) in zip(*predictions, strict=True):
        maps = [each.maps.float().numpy(force=True) for each in (first, second) if each.maps is not None]
        if maps[0].shape != maps[1].shape or not batch.index.equal(other.index):
            raise TagfillError("The two models have class maps of different sizes; train both at the same image size.")
        grid = maps[0].shape[2:]
        labels = batch.labels.numpy(force=True)
        for kind, value in (("positive", POSITIVE), ("negative", NEGATIVE)):
            cells = [each[labels == value].reshape(-1, grid[0] * grid[1]) for each in maps]
            for model, each in enumerate(cells):
                low, high = extremes(each)
                ends.setdefault(("top", kind, model), []).append(high)
                ends.setdefault(("bottom", kind, model), []).append(low)
            if value == POSITIVE:
                control = rank_correlation(cells[0], centered_gaussian(*grid).reshape(1, -1))
                correlations.append((rank_correlation(cells[0], cells[1]), control))
    agreement, control = (np.concatenate(each) for each in zip(*correlations, strict=True))
    return MapComparison(agreement, control, {key: np.concatenate(parts) for key, parts in ends.items()})


def centered_gaussian(height: int, width: int, sigma: float = 0.25) -> NDArray[np.float64]:
    """A Gaussian at the center of a grid, H×W, in coordinates relative to the image.

    Rounding makes the values of cells at the same distance from the center exactly equal.
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


def _draw_agreement(comparison: MapComparison, names: tuple[str, str]) -> Figure:
    figure, panel = figures.new_figure(6.4, 3.6)
    edges = np.linspace(-1, 1, 41)
    rows = []
    pairs = {
        f"{names[0]} and {names[1]}": comparison.agreement,
        f"{names[0]} and a centered Gaussian": comparison.control,
    }
    for position, (name, values) in enumerate(pairs.items()):
        known = values[~np.isnan(values)]
        counts, _ = np.histogram(known, bins=edges)
        share = 100 * counts / max(len(known), 1)
        panel.stairs(share, edges, fill=True, color=figures.color(position), alpha=0.45, label=name)
        panel.stairs(share, edges, color=figures.color(position), linewidth=1.4)
        rows += [
            (name, round(float(low), 4), round(float(high), 4), int(count))
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    figures.label_panel(panel, "", "Spearman correlation of class maps", "percent of present labels")
    panel.set_xlim(-1, 1)
    figures.legend_above(figure, panel, columns=1)
    medians = [np.nanmedian(values) for values in pairs.values()]
    return report_figure(
        figure,
        "agreement",
        "Rank correlation of the class maps of two models for each image and present label, and of the first model's "
        "maps with a Gaussian at the center.",
        f"Two histograms; medians {medians[0]:.2f} and {medians[1]:.2f}.",
        Table("agreement", "Present labels in each bin of the correlation.", ("pair", "from", "to", "labels"), rows),
    )


def _attribution_quantiles(comparison: MapComparison, names: tuple[str, str]) -> list[tuple[Any, ...]]:
    """Name, number of labels, mean and five quantiles of each box of the box plots."""
    rows: list[tuple[Any, ...]] = []
    for (end, kind, model), values in sorted(comparison.attribution.items()):
        if len(values):
            numbers = [round(float(value), 4) for value in (values.mean(), *np.percentile(values, _QUANTILES))]
            rows.append((f"{end}, {kind}, {names[model]}", len(values), *numbers))
    return rows


def _draw_attribution(comparison: MapComparison, names: tuple[str, str], quantiles: list[tuple[Any, ...]]) -> Figure:
    figure, panels = figures.new_panels(8.6, 3.6, columns=2)
    for panel, end in zip(panels, ("top", "bottom"), strict=True):
        for place, kind in enumerate(("positive", "negative")):
            for model in (0, 1):
                values = comparison.attribution.get((end, kind, model), np.empty(0))
                if len(values):
                    _draw_box(panel, place + (model - 0.5) * 0.36, values, figures.color(model))
        panel.set_xticks([0, 1], ["positive labels", "negative labels"])
        panel.set_xlim(-0.6, 1.6)
        which = "highest" if end == "top" else "lowest"
        figures.label_panel(panel, f"{which} {SHARE:.0%} of cells", "", "mean attribution score")
        panel.grid(visible=False, axis="x")
    for model in (0, 1):
        panels[0].plot([], [], color=figures.color(model), linewidth=6, alpha=0.6, label=names[model])
    figures.legend_above(figure, panels[0])
    columns = ("boxes", "labels", "mean", *(f"{quantile}%" for quantile in _QUANTILES))
    return report_figure(
        figure,
        "attribution",
        f"Mean of the highest and of the lowest {SHARE:.0%} of the cells of class maps. Boxes span the middle half, "
        "whiskers reach from 5 to 95 percent.",
        "Box plots of two models for positive and negative labels.",
        Table("attribution", "Quantiles of attribution scores.", columns, quantiles),
    )


def _draw_box(panel: Any, x: float, values: NDArray[np.float64], color: str) -> None:
    low, first, median, third, high = np.percentile(values, _QUANTILES).tolist()
    stats = [{"med": median, "q1": first, "q3": third, "whislo": low, "whishi": high, "fliers": []}]
    panel.bxp(
        stats,
        positions=[x],
        widths=0.3,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": color, "alpha": 0.6, "edgecolor": color},
        medianprops={"color": figures.TEXT, "linewidth": 1.6},
        whiskerprops={"color": color, "linewidth": 1.4},
        capprops={"color": color, "linewidth": 1.4},
        manage_ticks=False,
    )


def _picture_maps(runs: Sequence[AnalyzedRun], split: str, rows: int, boost: float) -> Figure | None:
    """Images beside the maps of each model; None if the images are not available.

    Args:
        runs: the first has complete labels, the second is also pictured boosted.
        split: of the images.
        rows: number of images.
        boost: α for the second run.
    """
    data = runs[0].dataset
    examples = pictures.choose_examples(data, split, rows)
    index = np.array([image for image, _ in examples], dtype=np.int64)
    photos = pictures.load_examples(data, split, index)
    if not examples or photos is None:
        return None
    columns: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
    for number, run in enumerate(runs):
        if run.label not in columns:
            columns[run.label] = _boosted_maps(run.load_model(maps=True), split, index)
        if number == 1:
            columns[f"{run.label}, boosted"] = _boosted_maps(run.load_model(maps=True, boost=boost), split, index)
    lines, numbers = [], []
    names = data.names(data.split(split)[index])
    for position, (_, label) in enumerate(examples):
        photo, class_name = photos[position], data.classes[label]
        drawn = [
            pictures.overlay_class_map(photo, maps[position, label], scaling="sigmoid") for maps, _ in columns.values()
        ]
        scores = [float(probabilities[position, label]) for _, probabilities in columns.values()]
        lines.append(pictures.GridRow(class_name, [photo, *drawn], ["", *(f"{score:.3f}" for score in scores)]))
        numbers.append((names[position], class_name, *(round(score, 6) for score in scores)))
    picture = pictures.picture_grid(["image", *columns], lines, notes="above", side=192)
    return Figure(
        "maps",
        "Class maps as probabilities of cells; the number above each map is the model's score for the label. The "
        f"column 'boosted' is the same model with α = {boost:g} only at inference. The images are the first of {split} "
        "that show a new class.",
        f"{len(lines)} images beside the maps of {len(columns)} models.",
        pictures.picture_png(picture),
        data=Table("maps", "Scores of the pictured labels.", ("image", "label", *columns), numbers),
    )


def _boosted_maps(
    model: LoadedModel, split: str, index: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Class maps of some images, boosted if the model boosts them before averaging, and probabilities."""
    maps, probabilities = pictures.predict_class_maps(model, split, index)
    options = model.model.head.options
    slope = options.get("boost", 1.0) if options.get("boost_eval", True) else 1.0
    return boost_maps(torch.from_numpy(maps), slope, options.get("boost_from", 0.0)).numpy(), probabilities


def analyze_attention(inputs: AnalysisInput, *, split: str = "test", images: int = 5) -> Section:
    """Attention of the query head for a label; attention, class map and their product of the tscam head.

    Args:
        inputs: runs with the head `query` or `tscam`.
        split: of the images.
        images: number of examples, each with one label.
    """
    drawn = [_picture_attention(inputs.seeds_of(label)[0], split, images) for label in inputs.labels]
    text = f"The images are the first of {split} that show a new class; the numbers are scores of that class."
    facts = {label: {"images": images} for label in inputs.labels}
    return Section("attention", "Attention", (text,), tuple(drawn), facts=facts)


def _picture_attention(run: AnalyzedRun, split: str, count: int) -> Figure:
    examples = pictures.choose_examples(run.dataset, split, count)
    index = np.array([image for image, _ in examples], dtype=np.int64)
    labels = np.array([label for _, label in examples], dtype=np.int64)
    photos = pictures.load_examples(run.dataset, split, index)
    if photos is None:
        raise TagfillError(f"Attention is drawn on images, but those of {run.dataset.name} are not available.")
    maps, scores = predict_attention(run, split, index, labels)
    names = run.dataset.names(run.dataset.split(split)[index])
    rows, numbers = [], []
    for at, photo in enumerate(photos):
        class_name = run.dataset.classes[labels[at]]
        drawn = [pictures.overlay_class_map(photo, values[at]) for values in maps.values()]
        rows.append(pictures.GridRow(class_name, [photo, *drawn], [f"{scores[at]:.3f}"]))
        numbers += [
            (names[at], class_name, round(float(scores[at]), 6), column, *peak(values[at]))
            for column, values in maps.items()
        ]
    name = f"attention-{file_name(run.label)}"
    return Figure(
        name,
        f"{run.label} with the {run.run.recipe.head} head. Each map is scaled from its lowest to its highest value.",
        f"{len(rows)} images beside {', '.join(maps)}.",
        pictures.picture_png(pictures.picture_grid(["image", *maps], rows, side=192)),
        data=Table(name, "Where maps are highest.", ("image", "label", "score", "map", "x", "y"), numbers),
    )


def predict_attention(
    run: AnalyzedRun, split: str, index: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.float32]]:
    """Predict attention for one label per image.

    Args:
        run: with the head `query` or `tscam`.
        split: of the images.
        index: n positions in the split.
        labels: n, class of each image.

    Returns:
        n×H×W maps by column title, and the n scores of the labels.
    """
    query = run.run.recipe.head == "query"
    model = run.load_model() if query else LoadedModel.open(run.run, run.dataset, maps=True)
    maps: dict[str, list[NDArray[np.float32]]] = {}
    scores = []
    done = 0
    for batch, prediction in model.predict(split, index, maps=not query, attention=True):
        assert prediction.attention is not None
        which = labels[done : done + len(batch.index)]
        every = np.arange(len(which))
        done += len(which)
        found = {"attention": prediction.attention}
        if query:
            found = {"attention, mean over heads": prediction.attention.mean(1)[every, which]}
        elif prediction.maps is not None:
            found |= {"class map": prediction.maps[every, which], "product": coupled(prediction)[every, which]}
        for name, values in found.items():
            maps.setdefault(name, []).append(values.float().numpy(force=True))
        shares = probabilities(prediction.logits.float().numpy(force=True), model.model.calibration)
        scores.append(shares[every, which])
    return {name: np.concatenate(values) for name, values in maps.items()}, np.concatenate(scores)


def peak(values: NDArray[np.floating]) -> tuple[float, float]:
    """X and y of the center of the highest cell, relative to the image.

    >>> peak(np.array([[0.0, 0.0], [0.0, 1.0]]))
    (0.75, 0.75)
    """
    row, column = np.unravel_index(int(np.argmax(values)), values.shape)
    return round((int(column) + 0.5) / values.shape[1], 4), round((int(row) + 0.5) / values.shape[0], 4)
