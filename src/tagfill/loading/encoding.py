"""How spatial features lie in a cache: as floats, or as bytes of a bounded activation.

An activation between 0 and a bound b, as ReLU6 is, keeps in 8 bits what a classifier needs of it. Each channel c of
a shard has a scale of its own, from its largest value m_c there, so that nothing is ever cut off:

    stored = round(x / s_c),   s_c = m_c / 255,   |stored · s_c − x| ≤ s_c / 2 ≤ b / 510

Where nothing bounds an activation, a few large values would make the steps too coarse for all others; such features
are kept in half precision. Whether a backbone stays within its bound is not believed but looked at, on a few images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError

DTYPES = ("uint8", "float16", "float32")
LARGEST_ERROR = 0.02  # of bytes, root mean square over that of the features; 0.0025 for tf_efficientnet_lite0
_ROWS = 64  # at a time, so that nothing of the size of a shard is made on the way


def check_dtype(dtype: str) -> None:
    """Refuse a type that features are not stored in."""
    if dtype not in (*DTYPES, "auto"):
        raise TagfillError(f"'{dtype}' is not a type of cached features; choose {', '.join(DTYPES)} or auto.")


def to_bytes(cells: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Features that are not negative as bytes.

    Args:
        cells: n×G×G×D.

    Returns:
        n×G×G×D bytes, and the D scales to multiply them with.

    >>> stored, scale = to_bytes(np.array([0, 510, 255, 102], np.float32).reshape(2, 1, 1, 2))
    >>> stored.ravel().tolist(), scale.tolist()
    ([0, 255, 255, 51], [1.0, 2.0])
    """
    largest = cells.max((0, 1, 2), initial=0)
    scale = np.where(largest > 0, largest / 255, 1).astype(np.float32)
    stored = np.empty(cells.shape, np.uint8)
    for start in range(0, len(cells), _ROWS):
        part = cells[start : start + _ROWS] / scale
        stored[start : start + _ROWS] = np.rint(part, out=part)
    return stored, scale


def from_bytes(stored: NDArray[np.uint8], scale: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Back from `to_bytes`, in one pass into `out`."""
    np.multiply(stored, scale, out=out)


def why_not_bytes(cells: NDArray[np.float32], bound: float) -> str | None:
    """What keeps the features of a few images from being stored as bytes; None if nothing does.

    Args:
        cells: n×G×G×D, as the backbone gave them.
        bound: that they are said to have.
    """
    least, largest = float(cells.min(initial=0)), float(cells.max(initial=0))
    if least < 0 or largest > bound * (1 + 1e-5):
        return f"they reach from {least:.3g} to {largest:.3g}, beyond 0 to {bound:g}"
    if (error := error_of_bytes(cells)) > LARGEST_ERROR:
        return f"8 bits would change them by {error:.1%}"
    return None


def error_of_bytes(cells: NDArray[Any]) -> float:
    """Root mean square of what bytes change, over that of the features; 0 where all of them are 0."""
    stored, scale = to_bytes(cells)
    size = float(np.square(cells, dtype=np.float64).mean()) if cells.size else 0.0
    return float(np.sqrt(np.square(stored * scale - cells, dtype=np.float64).mean() / size)) if size > 0 else 0.0
