"""Two methods class by class: the difference of their average precision, coloured by what is missing of each class.

Sharma et al., Fig. 5: classes from the largest loss to the largest gain; if those at the right are bright, a method
wins where labels are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tagfill.experiments import drawing
from tagfill.experiments.analyses import charts
from tagfill.experiments.analyses.charts import plain
from tagfill.experiments.report import Figure, Table
from tagfill.metrics import Gathered, average_precision

_NAMED = 60  # more classes than that have no room for their names


def difference(
    found: Mapping[str, Sequence[Gathered]],
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
    figure, panel = drawing.new_figure(max(6.0, min(12.0, 0.28 * len(classes) + 2)), 4.0)
    scale = ScalarMappable(Normalize(float(shade.min()), max(float(shade.max()), float(shade.min()) + 1e-9)), "viridis")
    panel.bar(np.arange(len(order)), gain[order], color=scale.to_rgba(shade[order]), width=0.85)
    panel.axhline(0, color=drawing.TEXT, linewidth=0.8)
    charts.dress(panel, "", "" if named else "classes, sorted", f"AP of {b} minus {a}, points")
    panel.grid(visible=False, axis="x")
    panel.set_xticks(range(len(order)) if named else [], [classes[c] for c in order] if named else [], rotation=90)
    bar = figure.colorbar(scale, ax=panel, pad=0.01)
    bar.set_label("positives in training" if missing is None else "share of positives missing, percent")
    bar.outline.set_visible(False)
    better = int((gain > 0).sum())
    rows = [
        (classes[c], plain(gain[c]), plain(means[0][c]), plain(means[1][c]), plain(shade[c]), int(seen[c]))
        for c in order.tolist()
    ]
    columns = ("class", "difference", a, b, "positives" if missing is None else "missing percent", "seen positives")
    return drawing.finished(
        figure,
        "difference",
        f"Average precision of {b} minus that of {a}, class by class: {b} is better on {better} of {len(classes)}. "
        + ("" if missing is None else "The brighter, the more of a class's positives nobody annotated."),
        f"Bars of {len(classes)} classes from loss to gain; {better} of them gain.",
        Table("difference", "Average precision of each class, percent.", columns, rows),
    )
