"""Charts in one style: as SVG that follows the page from light to dark, and as PNG.

Everything that is not in a method's own color is drawn in the marker color `TEXT`, which `svg` replaces by the text
color of the page. A panel is one pair of matplotlib axes.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

COLORS = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733"),
    *("#332288", "#44bb99", "#999999", "#882211", "#ff99dd", "#88cc33", "#8866dd"),
)
"""Paul Tol's bright scheme, which color-blind readers can distinguish, and more that differ clearly from each other."""

TEXT = "#010203"  # replaced by the text color of the page
MARKERS = "osD^vPX*<>"
_DASHES = ("-", "--", ":")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tagfill",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": TEXT,
    "axes.edgecolor": TEXT,
    "axes.labelcolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "grid.color": TEXT,
    "grid.alpha": 0.15,
}


def new_figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure with one panel, `width` × `height` inches."""
    figure, (panel,) = new_panels(width, height)
    return figure, panel


def new_panels(
    width: float, height: float, *, rows: int = 1, columns: int = 1, used: int | None = None
) -> tuple[Any, list[Any]]:
    """A figure that needs no display, and its panels row by row.

    Args:
        width: in inches.
        height: in inches.
        rows: number of rows of panels.
        columns: number of columns of panels.
        used: number of panels to return; the others are hidden. All by default.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with matplotlib.rc_context(_STYLE):
        figure = _figure_class()(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[used:] if used is not None else []:
        panel.set_visible(False)
    return figure, panels[:used]


@functools.cache
def _figure_class() -> type[Any]:
    """A figure that a notebook shows, even if pyplot was never imported."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            return png(self, dpi=100)

    return NotebookFigure


def color(position: int) -> str:
    """The color of the line or bar at a position.

    >>> color(0), color(len(COLORS)) == color(0)
    ('#4477aa', True)
    """
    return COLORS[position % len(COLORS)]


def plot_mean_and_band(
    panel: Any, x: Sequence[Any], points: Sequence[tuple[float, float]], position: int, label: str
) -> None:
    """Plot a line of means, with a band of one standard deviation on either side.

    Args:
        panel: to draw on.
        x: position of each point.
        points: mean and standard deviation of each point.
        position: of the line among the others; decides color, dashes and marker.
        label: for the legend.
    """
    mean, deviation = np.array(points, dtype=np.float64).reshape(-1, 2).T
    style = {"color": color(position), "linestyle": _DASHES[position // len(COLORS) % len(_DASHES)]}
    marker = MARKERS[position % len(MARKERS)]
    panel.plot(x, mean, marker=marker, markersize=4.5, linewidth=1.7, label=label, **style)
    if np.nan_to_num(deviation).any():
        panel.fill_between(x, mean - deviation, mean + deviation, color=style["color"], alpha=0.18, linewidth=0)


def label_panel(panel: Any, title: str, x: str, y: str) -> None:
    """Set the title and the axis labels, and show a light grid."""
    panel.set_title(title, fontsize=11, color=TEXT)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.set_axisbelow(True)
    panel.grid(visible=True)


def integer_ticks(axis: Any) -> None:
    """Put ticks at whole numbers only, for epochs and counts."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def legend_above(figure: Any, panel: Any, *, columns: int = 4, **style: Any) -> None:
    """Put a legend of a panel's lines above the figure, unless there is only one line.

    It has as many columns as fit into the width, and the figure grows with a legend of more than half an inch.

    Args:
        figure: to draw on.
        panel: with the lines.
        columns: at most.
        **style: of the legend, see `matplotlib.legend.Legend`.
    """
    handles, labels = panel.get_legend_handles_labels()
    if len(labels) < 2:
        return
    for count in range(min(columns, len(labels)), 0, -1):
        legend = figure.legend(
            handles, labels, loc="outside upper center", **{"ncols": count, "frameon": False, **style}
        )
        extent = legend.get_window_extent()
        if extent.width <= figure.bbox.width or count == 1:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + max(0.0, extent.height / figure.dpi - 0.5))


def escape_math(text: str) -> str:
    r"""Escape dollar signs, which matplotlib would read as the start of a formula.

    >>> escape_math("a$b$")
    'a\\$b\\$'
    """
    return text.replace("$", r"\$")


def svg(figure: Any) -> str:
    """An `<svg>` element to embed in a page, whose text color it takes."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(TEXT, "currentColor")


def svg_file(figure: Any) -> bytes:
    """A standalone SVG file, with text colors of its own for light and dark."""
    scheme = "<style>svg{color:#1a1a1a}@media(prefers-color-scheme:dark){svg{color:#e6e6e6}}</style>"
    head, rest = svg(figure).split(">", 1)
    return f"{head}>{scheme}{rest}".encode()


def png(figure: Any, *, dpi: int = 144) -> bytes:
    """A PNG file with a white background."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
