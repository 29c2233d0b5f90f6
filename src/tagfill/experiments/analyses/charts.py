"""What the figures of analyses share: lines with a band over seeds, axes, a legend above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tagfill.experiments import drawing

MARKERS = "osD^vPX*<>"
_DASHES = ("-", "--", ":")


def line(panel: Any, x: Sequence[Any], points: Sequence[tuple[float, float]], position: int, label: str) -> None:
    """A line of means in the colour of its position, with a band of one deviation on either side.

    Args:
        panel: to draw on.
        x: where each point stands.
        points: mean and deviation of each.
        position: of the line among others, which decides colour and marker.
        label: for the legend.
    """
    mean, deviation = np.array(points, dtype=np.float64).reshape(-1, 2).T
    style = {"color": drawing.colour(position), "linestyle": _DASHES[position // len(drawing.COLOURS) % len(_DASHES)]}
    marker = MARKERS[position % len(MARKERS)]
    panel.plot(x, mean, marker=marker, markersize=4.5, linewidth=1.7, label=label, **style)
    if np.nan_to_num(deviation).any():
        panel.fill_between(x, mean - deviation, mean + deviation, color=style["color"], alpha=0.18, linewidth=0)


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers, as epochs and counts are."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def dress(panel: Any, title: str, x: str, y: str) -> None:
    """Title, axes and a quiet grid."""
    panel.set_title(title, fontsize=11, color=drawing.TEXT)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.set_axisbelow(True)
    panel.grid(visible=True)


def legend(figure: Any, panel: Any, *, columns: int = 4) -> None:
    """All lines of a panel, above the figure."""
    handles, labels = panel.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)), frameon=False)


def plain(value: float, digits: int = 4) -> float | None:
    """A number for a table, rounded; nothing for one that is not a number.

    >>> plain(float("nan")), plain(61.23456)
    (None, 61.2346)
    """
    return None if np.isnan(value) else round(float(value), digits)
