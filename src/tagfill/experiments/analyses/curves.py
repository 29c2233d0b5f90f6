"""Curves of mAP: over the epochs of training, and over the share of labels that training knew.

- Convergence: validation mAP against the epoch, as Kim et al. and Kundu and Tighe show it; Soft Exposure is said to be
  ahead of its baselines because missing labels teach too.
- Fractions: mAP and mF1 against the share of known labels. mF1 chooses a threshold per class on validation and applies
  it to the scored split (Kundu and Tighe, Fig. 3).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tagfill import figures
from tagfill.errors import TagfillError
from tagfill.experiments.analyses.inputs import AnalysisInput, AnalyzedRun, mean_and_deviation
from tagfill.experiments.report import Section, Table
from tagfill.experiments.report.section import report_figure
from tagfill.io import nan_to_none
from tagfill.metrics import GatheredPredictions, best_thresholds, count, mean_average_precision

_NEAR_BEST = 0.99  # share of the best mAP
_SHARE_NAMES = {
    "entries": "known labels of training images, percent",
    "positives": "known positives of training images, percent",
}


def analyze_convergence(inputs: AnalysisInput) -> Section:
    """Validation mAP against the epoch."""
    curves = {label: [_validation_curve(run) for run in inputs.seeds_of(label)] for label in inputs.labels}
    figure, panel = figures.new_figure(7.2, 4.2)
    points, ends = [], []
    for position, (label, seeds) in enumerate(curves.items()):
        length = max(map(len, seeds))
        padded = np.stack([np.pad(seed, (0, length - len(seed)), constant_values=np.nan) for seed in seeds])
        pairs = [mean_and_deviation(column.tolist()) for column in padded.T]
        epochs = list(range(1, length + 1))
        figures.plot_mean_and_band(panel, epochs, pairs, position, label)
        points += [
            (label, epoch, nan_to_none(mean, 4), nan_to_none(deviation, 4), len(seeds))
            for epoch, (mean, deviation) in zip(epochs, pairs, strict=True)
        ]
        best, _ = mean_and_deviation([float(np.nanmax(seed)) for seed in seeds])
        last, _ = mean_and_deviation([float(seed[-1]) for seed in seeds])
        reached, _ = mean_and_deviation([first_epoch_near_best(seed) for seed in seeds])
        ends.append((label, nan_to_none(best, 2), nan_to_none(reached, 1), nan_to_none(last, 2), len(seeds)))
    figures.label_panel(panel, "", "epoch", "validation mAP, percent")
    figures.integer_ticks(panel.xaxis)
    figures.legend_above(figure, panel)
    fastest = min(ends, key=lambda row: (row[2] is None, row[2]))
    ends.sort(key=lambda row: -(row[1] or 0.0))
    drawn = report_figure(
        figure,
        "convergence",
        "Validation mAP after each epoch. Bands are one standard deviation over seeds.",
        f"Lines of {len(curves)} methods over epochs; {ends[0][0]} reaches the highest mAP, {ends[0][1]}.",
        Table("convergence", "Validation mAP by epoch.", ("run", "epoch", "val_mAP", "deviation", "seeds"), points),
    )
    columns = ("run", "best val mAP", f"epoch with {_NEAR_BEST:.0%} of it", "last val mAP", "seeds")
    text = (
        f"{fastest[0]} is the first to come within {1 - _NEAR_BEST:.0%} of its best validation mAP, in epoch "
        f"{fastest[2]:g}."
    )
    return Section(
        "convergence",
        "Convergence",
        (text,),
        (drawn,),
        (Table("convergence-ends", "Best and last epoch, means over seeds, best first.", columns, ends),),
        facts={label: {"best": best, "epoch": epoch, "last": last} for label, best, epoch, last, _ in ends},
    )


def _validation_curve(run: AnalyzedRun) -> NDArray[np.float64]:
    """Validation mAP of each epoch over all stages; NaN where there is none."""
    curve = np.array([epoch.get("val_mAP", np.nan) for epoch in run.run.metrics()], dtype=np.float64)
    if np.isnan(curve).all():
        raise TagfillError(f"The run {run.run.folder} has no validation scores; it needs an epoch and a split 'val'.")
    return curve


def first_epoch_near_best(curve: NDArray[np.float64], share: float = _NEAR_BEST) -> float:
    """The first epoch that reaches a share of the best score.

    >>> first_epoch_near_best(np.array([10.0, 59.5, 60.0, 58.0]))
    2.0
    """
    return float(np.flatnonzero(curve >= share * np.nanmax(curve))[0] + 1)


def analyze_fractions(
    inputs: AnalysisInput, *, split: str = "test", of: Literal["entries", "positives"] = "entries"
) -> Section:
    """Scores against the share of known training labels: mAP and mF1.

    Args:
        inputs: runs of some methods on datasets with different shares of labels.
        split: to score.
        of: the share of all pairs of image and class that are known, or of the positives, which needs the truth.
    """
    shares = {run.dataset.folder: known_share(run, of) for run in inputs.runs}
    if len(set(shares.values())) < 2:
        raise TagfillError("All runs were trained on the same share of labels; give runs with different shares.")
    found: dict[str, dict[float, list[tuple[float, float]]]] = {}
    with inputs.progress.bar("predicting", len(inputs.runs), "runs") as bar:
        for run in inputs.runs:
            scored = run.predictions(split)
            chosen_on = run.predictions("val") if "val" in run.dataset.splits else scored
            pair = 100 * mean_average_precision(scored.scores, scored.labels), 100 * mean_f1(scored, chosen_on)
            found.setdefault(run.title, {}).setdefault(shares[run.dataset.folder], []).append(pair)
            bar.advance()
    figure, panels = figures.new_panels(9.2, 3.8, columns=2)
    rows: list[tuple[Any, ...]] = []
    for measure, (panel, name) in enumerate(zip(panels, ("mAP", "mF1"), strict=True)):
        for position, (title, points) in enumerate(found.items()):
            x = sorted(points)
            pairs = [mean_and_deviation([scores[measure] for scores in points[share]]) for share in x]
            figures.plot_mean_and_band(panel, [100 * share for share in x], pairs, position, title)
            rows += [
                (title, name, round(100 * share, 4), nan_to_none(m, 4), nan_to_none(d, 4), len(points[share]))
                for share, (m, d) in zip(x, pairs, strict=True)
            ]
        figures.label_panel(panel, "", _SHARE_NAMES[of], f"{split} {name}, percent")
    figures.legend_above(figure, panels[0])
    drawn = report_figure(
        figure,
        "fractions",
        f"Scores on {split} against the share of known training labels. Bands are one standard deviation over runs.",
        f"Lines of {len(found)} methods over {len(set(shares.values()))} shares of labels.",
        Table("fractions", "Scores by share.", ("run", "measure", "known percent", "score", "deviation", "runs"), rows),
    )
    facts: dict[str, Any] = {}
    for title, name, share, score, *_ in rows:
        facts.setdefault(title, {}).setdefault(name, {})[f"{share:g}"] = score
    text = f"{len(inputs.runs)} runs on {len(set(shares.values()))} different shares of the labels."
    return Section("fractions", "Shares of known labels", (text,), (drawn,), facts=facts)


def known_share(run: AnalyzedRun, of: str) -> float:
    """Share of the labels of its training images that a run knew, in 0…1."""
    known = run.dataset.labels("train")
    if of == "entries":
        return round(int(known.known.sum()) / (len(known) * known.width), 6)
    if known.complete():
        return 1.0
    return round(int(known.positives.sum()) / int(run.truth().positives.sum()), 6)


def mean_f1(scored: GatheredPredictions, chosen_on: GatheredPredictions) -> float:
    """Mean F1 over classes, with the thresholds that are best on other predictions of the same model."""
    thresholds = best_thresholds(chosen_on.scores, chosen_on.labels, default=0.0)
    return float(np.float64(count(scored.scores, scored.labels, thresholds).mean_f1))
