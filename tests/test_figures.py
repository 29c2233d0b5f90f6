"""Colors and legends of charts with many lines."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tagfill import figures


def lab(color: str) -> np.ndarray:
    """CIE L*a*b* coordinates of an sRGB color, in which distances are roughly those that eyes see."""
    rgb = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    x, y, z = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_at_least_twelve_colors_differ_clearly() -> None:
    assert len(figures.COLORS) >= 12
    for one, other in combinations(figures.COLORS, 2):
        assert np.linalg.norm(lab(one) - lab(other)) > 25, (one, other)


@pytest.mark.parametrize("length", [4, 30])
def test_a_legend_of_many_names_stays_inside_the_figure(length: int) -> None:
    figure, panel = figures.new_figure(7.0, 3.6)
    for number in range(14):
        panel.plot([0, 1], [number, number], label=f"{number:02d}" + "m" * (length - 2))
    figures.legend_above(figure, panel, fontsize=9)

    figure.canvas.draw()

    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert box.x0 >= 0
    assert box.x1 <= whole.width
    assert box.y1 <= whole.height
    assert panel.get_window_extent().height > 0.3 * whole.height
