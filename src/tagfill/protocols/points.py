"""Where an annotator would put a point on an instance.

- `mask`: a pixel of its mask, uniformly; the point is the middle of the pixel.
- `box`: anywhere in its box, uniformly.
- `centre`: N(middle of its box, 0.02) on each axis, relative to the image and clipped to it.
- `auto`: the mask where there is one, else the centre. An instance that is a point already stays as it is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import run_lengths
from tagfill.errors import DatasetError

POINTS = ("auto", "mask", "box", "centre")
SPREAD = 0.02


def place(rows: pa.Table, first: NDArray[np.float64], second: NDArray[np.float64], point: str) -> NDArray[np.float64]:
    """A point on each instance.

    Args:
        rows: instances: kind, x, y, w, h, and the masks for `auto` and `mask`.
        first: a uniform number for each.
        second: another one.
        point: how points are placed.

    Returns:
        x and y of each instance, relative to the image.
    """
    kind = np.array(rows["kind"].to_pylist(), dtype=object)
    x, y, w, h = (pc.fill_null(rows[name], 0).to_numpy().astype(np.float64) for name in ("x", "y", "w", "h"))
    if point == "box":
        across, down = x + (first - 0.5) * w, y + (second - 0.5) * h
    else:
        radius = SPREAD * np.sqrt(-2 * np.log1p(-first))  # Box and Muller: two normal numbers from two uniform ones
        across, down = x + radius * np.cos(2 * np.pi * second), y + radius * np.sin(2 * np.pi * second)
    points: NDArray[np.float64] = np.clip(np.stack([across, down], axis=1), 0.0, 1.0)
    exact = kind == "point"
    points[exact] = np.stack([x, y], axis=1)[exact]
    if point in ("auto", "mask"):
        for at in np.flatnonzero(kind == "mask").tolist():
            rle, height, width = (rows[name][at].as_py() for name in ("rle", "rle_height", "rle_width"))
            chosen = pixel(rle, height, float(first[at]))
            if chosen is not None:
                points[at] = (chosen[1] + 0.5) / width, (chosen[0] + 0.5) / height
    if point == "mask" and not np.isin(kind, ["mask", "point"]).all():
        raise DatasetError(
            "Points were to be drawn from masks, but some instances have a box alone; "
            "choose point 'auto', 'box' or 'centre'."
        )
    return points


def pixel(rle: bytes, height: int, uniform: float) -> tuple[int, int] | None:
    """Row and column of a pixel of a mask, each equally likely for a uniform number; None if the mask is empty.

    >>> pixel(b"22", 2, 0.0), pixel(b"22", 2, 0.99)
    ((0, 1), (1, 1))
    """
    try:
        lengths = run_lengths.runs(rle)
    except ValueError as problem:
        raise DatasetError(f"The run lengths of a mask {problem}; 'tagfill inspect' names the row.") from None
    painted = np.cumsum(lengths[1::2])
    if not len(painted) or painted[-1] <= 0:
        return None
    chosen = int(uniform * painted[-1])
    run = int(np.searchsorted(painted, chosen, side="right"))
    within = chosen - (int(painted[run - 1]) if run else 0)
    at = int(lengths[: 2 * run + 1].sum()) + within
    return at % height, at // height
