"""Do two maps rank their cells alike? Spearman's rank correlation, many pairs at once.

ρ = correlation of the ranks, where equal values share the mean of their ranks
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """Spearman's ρ of each pair of rows.

    Args:
        first: n×m.
        second: n×m, or 1×m to compare all with the same.

    Returns:
        n values in -1…1; NaN where all values of a row are equal.

    Example:
        >>> rank_correlation([[1.0, 2.0, 9.0], [3.0, 2.0, 2.0]], [[0.1, 0.2, 0.3]]).round(3)
        array([ 1.   , -0.866])
    """
    ranks = [_ranks(np.asarray(values)) for values in (first, second)]
    a, b = (each - each.mean(axis=1, keepdims=True) for each in ranks)
    norm = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    found: NDArray[np.float64] = np.full(max(len(a), len(b)), np.nan)
    np.divide((a * b).sum(axis=1), norm, out=found, where=norm > 0)
    return found


def _ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Ranks within each row, from 0; equal values share the mean of theirs."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    new = np.ones(values.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    last = np.ones(values.shape, dtype=bool)
    last[:, :-1] = new[:, 1:]
    begin = np.maximum.accumulate(np.where(new, places, 0), axis=1)
    end = np.minimum.accumulate(np.where(last, places, values.shape[1])[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape, dtype=np.float64)
    np.put_along_axis(ranks, order, (begin + end) / 2, axis=1)
    return ranks
