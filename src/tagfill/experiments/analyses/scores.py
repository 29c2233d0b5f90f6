"""How sure models are: the highest scores of images, and what becomes of positives that nobody annotated.

Assumed negatives teach a model to call little present, so the scores of even its first choices are low; with complete
labels they are not (Verelst et al., WACV 2023, Fig. 5a). A method that recovers missing labels moves the probabilities
of unobserved positives upwards epoch by epoch (Cole et al., CVPR 2021); ROLE's estimates stand beside its predictions.
The second figure needs runs with `record: [scores]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.experiments import figures
from tagfill.experiments.analyses import subjects
from tagfill.experiments.analyses.subjects import Question, Subject
from tagfill.experiments.report import Figure, Section, Table
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.probabilities import sigmoid
from tagfill.training import records

_BINS = 25


def scores(question: Question, *, split: str = "val", ranks: int = 4) -> Section:
    """Distributions of the highest scores of images; probabilities of unobserved positives over the epochs.

    Args:
        question: the runs.
        split: of the highest scores.
        ranks: how many of an image's highest scores.
    """
    count = min(ranks, len(question.subjects[0].dataset.classes))
    found = {
        label: np.concatenate([highest(seed.scores, count) for seed in seeds])
        for label, seeds in question.predictions(split).items()
    }
    figures = [_highest(found, split)]
    recorded = {subject.label: subject for subject in reversed(question.subjects) if subject.dataset.truth is not None}
    panels = [panel for label in question.labels if label in recorded for panel in _panels(recorded[label])]
    facts: dict[str, Any] = {
        label: {f"top-{rank + 1} median": round(float(np.median(each[:, rank])), 4) for rank in range(count)}
        for label, each in found.items()
    }
    text = f"Scores of {len(next(iter(found.values()))):,} images of {split}."
    if panels:
        figures.append(_unobserved(panels))
        for title, histogram in panels:
            facts.setdefault("unobserved positives above 0.5, last epoch", {})[title] = round(above_half(histogram), 4)
    else:
        text += " No run has recorded scores of training images; train with --set record=scores to see unobserved ones."
    return Section("scores", "Scores", (text,), tuple(figures), facts=facts)


def highest(logits: NDArray[np.floating], count: int) -> NDArray[np.float64]:
    """The highest probabilities of each image, N×count, the highest first.

    >>> highest(np.array([[0.0, 50.0, -50.0]]), 2)
    array([[1. , 0.5]])
    """
    return sigmoid(-np.sort(-logits, axis=1)[:, :count])


def histogram(values: NDArray[np.floating], bins: int = _BINS) -> NDArray[np.float64]:
    """Shares of values in equal steps from 0 to 1; the last step holds 1 too.

    >>> histogram(np.array([0.0, 0.1, 0.5, 1.0]), 2)
    array([0.5, 0.5])
    """
    counts, _ = np.histogram(values, bins=bins, range=(0, 1))
    shares: NDArray[np.float64] = counts / max(counts.sum(), 1)
    return shares


def above_half(histograms: NDArray[np.float64]) -> float:
    """The share of the last epoch that lies in the upper half of the steps."""
    return float(histograms[-1, -(histograms.shape[1] // 2) :].sum())


def _highest(found: dict[str, NDArray[np.float64]], split: str) -> Figure:
    """A ridge for each method and rank: the share of images at each probability."""
    count = next(iter(found.values())).shape[1]
    figure, panels = figures.new_panels(2.6 * count + 1.4, 0.62 * len(found) + 1.5, columns=count)
    middles = (np.arange(_BINS) + 0.5) / _BINS
    rows = []
    for rank, panel in enumerate(panels):
        shares = {label: histogram(each[:, rank]) for label, each in found.items()}
        tallest = max(float(share.max()) for share in shares.values())
        for position, (label, share) in enumerate(shares.items()):
            base, colour = len(found) - 1 - position, figures.color(position)
            height = base + 0.85 * share / tallest
            panel.fill_between(middles, base, height, step="mid", color=colour, alpha=0.55, linewidth=0)
            panel.step(middles, height, where="mid", color=colour, linewidth=1.2)
            median = float(np.median(found[label][:, rank]))
            panel.plot([median, median], [base, base + 0.5], color=figures.TEXT, linewidth=1.6)
            rows += [
                (label, rank + 1, round(at / _BINS, 4), round((at + 1) / _BINS, 4), round(float(part), 6))
                for at, part in enumerate(share)
            ]
        subjects.dress(panel, f"top-{rank + 1}", "probability", "")
        panel.set_xlim(0, 1)
        panel.set_yticks(range(len(found)), list(reversed(found)) if rank == 0 else [""] * len(found))
        panel.tick_params(axis="y", length=0)
        panel.grid(visible=False, axis="y")
    return figures.finished(
        figure,
        "highest-scores",
        f"Distributions of the {count} highest scores of each {split} image; the mark is the median.",
        f"Ridges of {len(found)} methods for each of the {count} highest scores.",
        Table("highest-scores", "Share of images in each step.", ("run", "rank", "from", "to", "share"), rows),
    )


def _panels(subject: Subject) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Histograms of unobserved positives, epochs × steps, of the predictions and of estimates where there are any."""
    truth, known = subject.truth(), subject.dataset.labels("train")
    found: dict[str, list[NDArray[np.float64]]] = {}
    for epoch in records.read_records(subject.run):
        if not epoch.has("scores"):
            continue
        index = epoch.column("scores.index")
        missed = (known.rows(index) == UNKNOWN) & (truth.rows(index) == POSITIVE)
        for name, title in (("probabilities", subject.label), ("estimates", f"{subject.label}, estimates")):
            if epoch.has(f"scores.{name}"):
                values = epoch.column(f"scores.{name}")[missed].astype(np.float64)
                found.setdefault(title, []).append(histogram(values[~np.isnan(values)]))
    for title, epochs in found.items():
        yield title, np.stack(epochs)


def _unobserved(panels: list[tuple[str, NDArray[np.float64]]]) -> Figure:
    """Epochs from left to right, probability upwards; white is nothing at all."""
    from matplotlib.colors import LogNorm

    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    size = (3.3 * columns + 0.8, 2.9 * lines)
    figure, every = figures.new_panels(*size, rows=lines, columns=columns, used=len(panels))
    rows = []
    image = None
    for panel, (title, shares) in zip(every, panels, strict=True):
        epochs = np.arange(len(shares) + 1) + 0.5
        shown = np.ma.masked_equal(100 * shares.T, 0)
        image = panel.pcolormesh(epochs, np.linspace(0, 1, _BINS + 1), shown, norm=LogNorm(0.1, 100), cmap="viridis_r")
        image.set_rasterized(True)
        subjects.dress(panel, title, "epoch", "probability")
        subjects.whole_numbers(panel.xaxis)
        panel.grid(visible=False)
        rows += [
            (title, epoch + 1, round(at / _BINS, 4), round((at + 1) / _BINS, 4), round(float(part), 6))
            for epoch, each in enumerate(shares)
            for at, part in enumerate(each)
        ]
    bar = figure.colorbar(image, ax=every, pad=0.01)
    bar.set_ticks([0.1, 1, 10, 100], labels=["0.1", "1", "10", "100"])
    bar.minorticks_off()
    bar.set_label("percent of them")
    bar.outline.set_visible(False)
    return figures.finished(
        figure,
        "unobserved-positives",
        "Probabilities of positives that nobody annotated, in a sample of the training images, epoch by epoch; each "
        "column is a histogram and white is none. The more of them end at the top, the more labels are recovered.",
        f"{len(panels)} histograms over epochs.",
        Table("unobserved-positives", "Share in each step.", ("run", "epoch", "from", "to", "share"), rows),
    )
