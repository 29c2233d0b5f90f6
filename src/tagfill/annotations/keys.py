"""Arrays of keys: one number, image·L + class, for each (image, label) pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def contains(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of `wanted` are among the ascending `keys`.

    >>> contains(np.array([2, 5]), np.array([5, 4, 2, 9])).tolist()
    [True, False, True, False]
    """
    if not len(keys):
        return np.zeros(len(wanted), dtype=bool)
    found: NDArray[np.bool_] = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found


def stretches(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of several stretches of one array, end to end, and which stretch each belongs to.

    >>> [part.tolist() for part in stretches(np.array([7, 2]), np.array([1, 3]))]
    [[7, 2, 3, 4], [0, 1, 1, 1]]
    """
    stretch = np.repeat(np.arange(len(counts)), counts)
    first = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return first + np.arange(len(stretch)), stretch
