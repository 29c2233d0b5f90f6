"""Sparse tables as ascending keys, row·L + class: which of them belong to some rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def entries_of(
    keys: NDArray[np.int64], rows: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The entries of some rows.

    Args:
        keys: row·L + class of each entry, ascending.
        rows: B, which to look up.
        width: L.

    Returns:
        For each entry of these rows: its position in `keys`, which of `rows` it belongs to, and its class.

    Example:
        >>> [part.tolist() for part in entries_of(np.array([1, 4, 5]), np.array([2, 0]), 2)]
        [[1, 2, 0], [0, 0, 1], [0, 1, 1]]
    """
    first = np.searchsorted(keys, rows * width)
    count = np.searchsorted(keys, (rows + 1) * width) - first
    entry = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return entry, np.repeat(np.arange(len(rows)), count), keys[entry] % width
