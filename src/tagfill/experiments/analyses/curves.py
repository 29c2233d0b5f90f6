"""How quickly methods learn: validation mAP against the epoch, all runs in one plot.

Kim et al. and Sharma et al. show such curves; Soft Exposure is said to be ahead of its baselines because what is
missing teaches too.


What more labels are worth: mAP and mF1 against the share of labels that is known, a line a method.

Each run counts with the dataset that it was trained on. mF1 chooses a threshold for each class on validation and
applies it to the split (Sharma et al., Fig. 3).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.experiments import figures
from tagfill.experiments.analyses import subjects
from tagfill.experiments.analyses.subjects import Question, Subject, mean_and_deviation
from tagfill.experiments.report import Section, Table
from tagfill.io import nan_to_none
from tagfill.metrics import GatheredPredictions, best_thresholds, count, mean_average_precision

_NEAR = 0.99  # of the best epoch's mAP is as good as there


def convergence(question: Question) -> Section:
    """Validation mAP against the epoch, a line a method."""
    curves = {label: [_curve(subject) for subject in question.seeds_of(label)] for label in question.labels}
    figure, panel = figures.new_figure(7.2, 4.2)
    points, ends = [], []
    for position, (label, seeds) in enumerate(curves.items()):
        length = max(map(len, seeds))
        padded = np.stack([np.pad(seed, (0, length - len(seed)), constant_values=np.nan) for seed in seeds])
        pairs = [mean_and_deviation(column.tolist()) for column in padded.T]
        epochs = list(range(1, length + 1))
        subjects.line(panel, epochs, pairs, position, label)
        points += [
            (label, epoch, nan_to_none(mean, 4), nan_to_none(spread, 4), len(seeds))
            for epoch, (mean, spread) in zip(epochs, pairs, strict=True)
        ]
        best, _ = mean_and_deviation([float(np.nanmax(seed)) for seed in seeds])
        last, _ = mean_and_deviation([float(seed[-1]) for seed in seeds])
        reached, _ = mean_and_deviation([near_best(seed) for seed in seeds])
        ends.append((label, nan_to_none(best, 2), nan_to_none(reached, 1), nan_to_none(last, 2), len(seeds)))
    subjects.dress(panel, "", "epoch", "validation mAP, percent")
    subjects.whole_numbers(panel.xaxis)
    subjects.legend(figure, panel)
    fast = min(ends, key=lambda row: (row[2] is None, row[2]))
    ends.sort(key=lambda row: -(row[1] or 0.0))
    drawn = figures.finished(
        figure,
        "convergence",
        "Validation mAP after each epoch. A band is one deviation over seeds.",
        f"Lines of {len(curves)} methods over epochs; {ends[0][0]} reaches the highest mAP, {ends[0][1]}.",
        Table("convergence", "Validation mAP by epoch.", ("run", "epoch", "val_mAP", "deviation", "seeds"), points),
    )
    columns = ("run", "best val mAP", f"epoch with {_NEAR:.0%} of it", "last val mAP", "seeds")
    return Section(
        "convergence",
        "Convergence",
        (f"{fast[0]} is the first to come within {1 - _NEAR:.0%} of its best validation mAP, in epoch {fast[2]:g}.",),
        (drawn,),
        (Table("convergence-ends", "Best and last epochs, means over seeds, best first.", columns, ends),),
        facts={label: {"best": best, "epoch": epoch, "last": last} for label, best, epoch, last, _ in ends},
    )


def near_best(curve: NDArray[np.float64], share: float = _NEAR) -> float:
    """The first epoch that has a share of the best one's score.

    >>> near_best(np.array([10.0, 59.5, 60.0, 58.0]))
    2.0
    """
    return float(np.flatnonzero(curve >= share * np.nanmax(curve))[0] + 1)


def _curve(subject: Subject) -> NDArray[np.float64]:
    """Validation mAP of each epoch, stages one after the other; NaN where there is none."""
    curve = np.array([epoch.get("val_mAP", np.nan) for epoch in subject.run.metrics()], dtype=np.float64)
    if np.isnan(curve).all():
        raise TagfillError(
            f"The run {subject.run.folder} has no validation scores; it needs an epoch and a split 'val'."
        )
    return curve


_NAMES = {"entries": "known labels of training, percent", "positives": "positives of training that are known, percent"}


def fractions(question: Question, *, split: str = "test", of: Literal["entries", "positives"] = "entries") -> Section:
    """Scores against the share of labels that training knew: mAP and mF1.

    Args:
        question: runs of some methods on datasets with different shares of labels.
        split: to score.
        of: the share of all pairs of image and class that are known, or of the positives, which needs the truth.
    """
    shares = {subject.dataset.folder: known_share(subject, of) for subject in question.subjects}
    if len(set(shares.values())) < 2:
        raise TagfillError("All runs were trained on the same share of labels; name runs on several.")
    found: dict[str, dict[float, list[tuple[float, float]]]] = {}
    with question.progress.bar("predicting", len(question.subjects), "runs") as bar:
        for subject in question.subjects:
            scored = subject.predictions(split)
            chosen_on = subject.predictions("val") if "val" in subject.dataset.splits else scored
            pair = 100 * mean_average_precision(scored.scores, scored.labels), 100 * mean_f1(scored, chosen_on)
            found.setdefault(subject.title, {}).setdefault(shares[subject.dataset.folder], []).append(pair)
            bar.advance()
    figure, panels = figures.new_panels(9.2, 3.8, columns=2)
    rows: list[tuple[Any, ...]] = []
    for measure, (panel, name) in enumerate(zip(panels, ("mAP", "mF1"), strict=True)):
        for position, (title, points) in enumerate(found.items()):
            places = sorted(points)
            pairs = [mean_and_deviation([each[measure] for each in points[share]]) for share in places]
            x = [100 * share for share in places]
            subjects.line(panel, x, pairs, position, title)
            rows += [
                (title, name, round(100 * share, 4), nan_to_none(m, 4), nan_to_none(d, 4), len(points[share]))
                for share, (m, d) in zip(places, pairs, strict=True)
            ]
        subjects.dress(panel, "", _NAMES[of], f"{split} {name}, percent")
    subjects.legend(figure, panels[0])
    drawn = figures.finished(
        figure,
        "fractions",
        f"Scores on {split} against what training knew; a band is one deviation over runs.",
        f"Lines of {len(found)} methods over {len(set(shares.values()))} shares of labels.",
        Table("fractions", "Scores by share.", ("run", "measure", "known percent", "score", "deviation", "runs"), rows),
    )
    facts: dict[str, Any] = {}
    for title, name, share, score, *_ in rows:
        facts.setdefault(title, {}).setdefault(name, {})[f"{share:g}"] = score
    text = f"{len(question.subjects)} runs on {len(set(shares.values()))} different shares of the labels."
    return Section("fractions", "Shares of known labels", (text,), (drawn,), facts=facts)


def known_share(subject: Subject, of: str) -> float:
    """How much of the labels of its training images a run knew, in 0…1."""
    known = subject.dataset.labels("train")
    if of == "entries":
        return round(int(known.known.sum()) / (len(known) * known.width), 6)
    if known.complete():
        return 1.0
    return round(int(known.positives.sum()) / int(subject.truth().positives.sum()), 6)


def mean_f1(scored: GatheredPredictions, chosen_on: GatheredPredictions) -> float:
    """Mean F1 over classes, with thresholds that are best on other predictions of the same model."""
    thresholds = best_thresholds(chosen_on.scores, chosen_on.labels, default=0.0)
    return float(np.float64(count(scored.scores, scored.labels, thresholds).mean_f1))
