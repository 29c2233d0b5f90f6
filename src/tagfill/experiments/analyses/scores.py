"""How confident models are: the highest scores of images, and the scores of positives that were not annotated.

Training with assumed negatives lowers even the highest scores of an image; training with complete labels does not
(Verelst et al., WACV 2023, Fig. 5a). A method that recovers missing labels raises the probabilities of unobserved
positives epoch by epoch (Cole et al., CVPR 2021); for ROLE, its estimates are shown too. The second figure needs runs
with `record: [scores]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill import figures
from tagfill.experiments.analyses.inputs import AnalysisInput, AnalyzedRun
from tagfill.experiments.report import Figure, Section, Table
from tagfill.experiments.report.section import report_figure
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.probabilities import sigmoid
from tagfill.training import records

_BINS = 25


def analyze_scores(inputs: AnalysisInput, *, split: str = "val", ranks: int = 4) -> Section:
    """Distributions of the highest scores of images; probabilities of unobserved positives over the epochs.

    Args:
        inputs: the runs.
        split: for the highest scores.
        ranks: number of highest scores per image.
    """
    count = min(ranks, len(inputs.runs[0].dataset.classes))
    highest = {
        label: np.concatenate([top_probabilities(seed.scores, count) for seed in seeds])
        for label, seeds in inputs.predictions(split).items()
    }
    drawn = [_draw_highest(highest, split)]
    first_seeds = {run.label: run for run in reversed(inputs.runs) if run.dataset.truth is not None}
    histograms: dict[str, NDArray[np.float64]] = {}
    for label in inputs.labels:
        if label in first_seeds:
            histograms |= _unobserved_histograms(first_seeds[label])
    facts: dict[str, Any] = {
        label: {f"top-{rank + 1} median": round(float(np.median(each[:, rank])), 4) for rank in range(count)}
        for label, each in highest.items()
    }
    text = f"Scores of {len(next(iter(highest.values()))):,} images of {split}."
    if histograms:
        drawn.append(_draw_unobserved(histograms))
        facts["unobserved positives above 0.5, last epoch"] = {
            title: round(share_above_half(each), 4) for title, each in histograms.items()
        }
    else:
        text += (
            " No run recorded scores of training images; train with --set record=scores to see unobserved positives."
        )
    return Section("scores", "Scores", (text,), tuple(drawn), facts=facts)


def top_probabilities(logits: NDArray[np.floating], count: int) -> NDArray[np.float64]:
    """The highest probabilities of each image, N×count, descending.

    >>> top_probabilities(np.array([[0.0, 50.0, -50.0]]), 2)
    array([[1. , 0.5]])
    """
    return sigmoid(-np.sort(-logits, axis=1)[:, :count])


def histogram(values: NDArray[np.floating], bins: int = _BINS) -> NDArray[np.float64]:
    """Shares of values in equal bins from 0 to 1; the last bin includes 1.

    >>> histogram(np.array([0.0, 0.1, 0.5, 1.0]), 2)
    array([0.5, 0.5])
    """
    counts, _ = np.histogram(values, bins=bins, range=(0, 1))
    shares: NDArray[np.float64] = counts / max(counts.sum(), 1)
    return shares


def share_above_half(histograms: NDArray[np.float64]) -> float:
    """The share of the last epoch in the upper half of the bins."""
    return float(histograms[-1, -(histograms.shape[1] // 2) :].sum())


def _draw_highest(highest: dict[str, NDArray[np.float64]], split: str) -> Figure:
    """A panel per rank, with a ridge per method: the share of images at each probability."""
    count = next(iter(highest.values())).shape[1]
    figure, panels = figures.new_panels(2.6 * count + 1.4, 0.62 * len(highest) + 1.5, columns=count)
    middles = (np.arange(_BINS) + 0.5) / _BINS
    rows = []
    for rank, panel in enumerate(panels):
        shares = {label: histogram(each[:, rank]) for label, each in highest.items()}
        tallest = max(float(share.max()) for share in shares.values())
        for position, (label, share) in enumerate(shares.items()):
            base, color = len(highest) - 1 - position, figures.color(position)
            height = base + 0.85 * share / tallest
            panel.fill_between(middles, base, height, step="mid", color=color, alpha=0.55, linewidth=0)
            panel.step(middles, height, where="mid", color=color, linewidth=1.2)
            median = float(np.median(highest[label][:, rank]))
            panel.plot([median, median], [base, base + 0.5], color=figures.TEXT, linewidth=1.6)
            rows += [(label, rank + 1, *_bin_edges(at), round(float(part), 6)) for at, part in enumerate(share)]
        figures.label_panel(panel, f"top-{rank + 1}", "probability", "")
        panel.set_xlim(0, 1)
        panel.set_yticks(range(len(highest)), list(reversed(highest)) if rank == 0 else [""] * len(highest))
        panel.tick_params(axis="y", length=0)
        panel.grid(visible=False, axis="y")
    return report_figure(
        figure,
        "highest-scores",
        f"Distributions of the {count} highest scores of each {split} image; the mark is the median.",
        f"Ridges of {len(highest)} methods for each of the {count} highest scores.",
        Table("highest-scores", "Share of images in each bin.", ("run", "rank", "from", "to", "share"), rows),
    )


def _unobserved_histograms(run: AnalyzedRun) -> dict[str, NDArray[np.float64]]:
    """Histograms of unobserved positives, epochs × bins: of the predictions, and of the estimates if there are any."""
    truth, known = run.truth(), run.dataset.labels("train")
    found: dict[str, list[NDArray[np.float64]]] = {}
    for epoch in records.read_records(run.run):
        if not epoch.has("scores"):
            continue
        index = epoch.column("scores.index")
        missed = (known.rows(index) == UNKNOWN) & (truth.rows(index) == POSITIVE)
        for name, title in (("probabilities", run.label), ("estimates", f"{run.label}, estimates")):
            if epoch.has(f"scores.{name}"):
                values = epoch.column(f"scores.{name}")[missed].astype(np.float64)
                found.setdefault(title, []).append(histogram(values[~np.isnan(values)]))
    return {title: np.stack(epochs) for title, epochs in found.items()}


def _draw_unobserved(histograms: dict[str, NDArray[np.float64]]) -> Figure:
    """A panel per run: epochs from left to right, probability upward."""
    from matplotlib.colors import LogNorm

    columns = min(3, len(histograms))
    lines = -(-len(histograms) // columns)
    size = (3.3 * columns + 0.8, 2.9 * lines)
    figure, panels = figures.new_panels(*size, rows=lines, columns=columns, used=len(histograms))
    rows = []
    image = None
    for panel, (title, shares) in zip(panels, histograms.items(), strict=True):
        epochs = np.arange(len(shares) + 1) + 0.5
        shown = np.ma.masked_equal(100 * shares.T, 0)
        image = panel.pcolormesh(epochs, np.linspace(0, 1, _BINS + 1), shown, norm=LogNorm(0.1, 100), cmap="viridis_r")
        image.set_rasterized(True)
        figures.label_panel(panel, title, "epoch", "probability")
        figures.integer_ticks(panel.xaxis)
        panel.grid(visible=False)
        rows += [
            (title, epoch + 1, *_bin_edges(at), round(float(part), 6))
            for epoch, each in enumerate(shares)
            for at, part in enumerate(each)
        ]
    bar = figure.colorbar(image, ax=panels, pad=0.01)
    bar.set_ticks([0.1, 1, 10, 100], labels=["0.1", "1", "10", "100"])
    bar.minorticks_off()
    bar.set_label("percent of unobserved positives")
    bar.outline.set_visible(False)
    return report_figure(
        figure,
        "unobserved-positives",
        "Probabilities of positives that were not annotated, in a sample of the training images, epoch by epoch. Each "
        "column is a histogram; white means none. The more of them end at the top, the more labels are recovered.",
        f"{len(histograms)} histograms over epochs.",
        Table("unobserved-positives", "Share in each bin.", ("run", "epoch", "from", "to", "share"), rows),
    )


def _bin_edges(at: int) -> tuple[float, float]:
    return round(at / _BINS, 4), round((at + 1) / _BINS, 4)
