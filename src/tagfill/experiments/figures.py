"""Figures in our style, as SVG that follows the page from light to dark, and as PNG.

Lines and words that are not in a method's own colour are drawn in a marker colour that the SVG then replaces by the
text colour of the page, so that one figure suits both.
"""

from __future__ import annotations

import io
from typing import Any

from tagfill.experiments.report.section import Figure as ReportFigure
from tagfill.experiments.report.section import Table

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#77aadd", "#99ddff", "#bbbbbb")
"""Told apart by colour-blind readers too (Paul Tol's bright and light schemes)."""

TEXT = "#010203"  # becomes the page's own text colour
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


def color(position: int) -> str:
    """The colour of the line or bar at a position.

    >>> colour(0), colour(10) == colour(0)
    ('#4477aa', True)
    """
    return COLOURS[position % len(COLOURS)]


def words(text: str) -> str:
    r"""A name that matplotlib writes as it is, whatever is in it.

    >>> words("a$b$")
    'a\\$b\\$'
    """
    return text.replace("$", r"\$")


def new_figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure of our style with one panel."""
    figure, (panel,) = new_panels(width, height)
    return figure, panel


def new_panels(
    width: float, height: float, *, rows: int = 1, columns: int = 1, used: int | None = None
) -> tuple[Any, list[Any]]:
    """A figure of our style, without a window system behind it, and its panels row by row.

    Args:
        width: in inches.
        height: in inches.
        rows: of panels.
        columns: of panels.
        used: how many of them are given and shown; all by default.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[used:] if used is not None else []:
        panel.set_visible(False)
    return figure, panels[:used]


def finished(
    figure: Any, name: str, caption: str, alt: str, data: Table | None = None, *, abreast: int = 1
) -> ReportFigure:
    """A drawing as a figure of a report's section, with the numbers behind it."""
    return ReportFigure(name, caption, alt, png(figure), svg(figure), data, abreast)


def svg(figure: Any) -> str:
    """The figure as an SVG element to stand in a page."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(TEXT, "currentColor")


def svg_file(figure: Any) -> bytes:
    """The figure as a file of its own, which has no page to take its text colour from."""
    scheme = "<style>svg{color:#1a1a1a}@media(prefers-color-scheme:dark){svg{color:#e6e6e6}}</style>"
    head, rest = svg(figure).split(">", 1)
    return f"{head}>{scheme}{rest}".encode()


def png(figure: Any, *, dpi: int = 144) -> bytes:
    """The figure as a picture on white."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
