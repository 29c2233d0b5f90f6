"""How quickly methods learn: validation mAP against the epoch, all runs in one plot.

Kim et al. and Sharma et al. show such curves; Soft Exposure is said to be ahead of its baselines because what is
missing teaches too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.experiments import drawing
from tagfill.experiments.analyses import charts
from tagfill.experiments.analyses.charts import plain
from tagfill.experiments.analyses.subjects import Question, Subject, mean_and_deviation
from tagfill.experiments.report import Section, Table

_NEAR = 0.99  # of the best epoch's mAP is as good as there


def convergence(question: Question) -> Section:
    """Validation mAP against the epoch, a line a method."""
    curves = {label: [_curve(subject) for subject in question.seeds_of(label)] for label in question.labels}
    figure, panel = drawing.new_figure(7.2, 4.2)
    points, ends = [], []
    for position, (label, seeds) in enumerate(curves.items()):
        length = max(map(len, seeds))
        padded = np.stack([np.pad(seed, (0, length - len(seed)), constant_values=np.nan) for seed in seeds])
        pairs = [mean_and_deviation(column.tolist()) for column in padded.T]
        epochs = list(range(1, length + 1))
        charts.line(panel, epochs, pairs, position, label)
        points += [
            (label, epoch, plain(mean), plain(spread), len(seeds))
            for epoch, (mean, spread) in zip(epochs, pairs, strict=True)
        ]
        best, _ = mean_and_deviation([float(np.nanmax(seed)) for seed in seeds])
        last, _ = mean_and_deviation([float(seed[-1]) for seed in seeds])
        reached, _ = mean_and_deviation([near_best(seed) for seed in seeds])
        ends.append((label, plain(best, 2), plain(reached, 1), plain(last, 2), len(seeds)))
    charts.dress(panel, "", "epoch", "validation mAP, percent")
    charts.whole_numbers(panel.xaxis)
    charts.legend(figure, panel)
    fast = min(ends, key=lambda row: (row[2] is None, row[2]))
    ends.sort(key=lambda row: -(row[1] or 0.0))
    drawn = drawing.finished(
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
