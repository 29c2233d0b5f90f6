"""How much of the loss from partial labels a method recovers, in score and in labels.

    gap closed = (method − floor) / (ceiling − floor)

The floor is the score of assuming negatives on the same partial labels, the ceiling that of training on full labels,
all with the same model and schedule. 0 is no gain, 1 is as good as full labels; values outside 0…1 are possible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN


def gap_closed(method: float, floor: float, ceiling: float) -> float:
    """The share of the gap between floor and ceiling that a method closes.

    Args:
        method: score of the method, in the unit of the other two.
        floor: score of assuming negatives on the same labels.
        ceiling: score of full labels.

    Returns:
        The share, or NaN without a gap (ceiling ≤ floor).

    Example:
        >>> round(gap_closed(72.0, floor=66.0, ceiling=76.0), 4)
        0.6
    """
    gap = ceiling - floor
    return (method - floor) / gap if gap > 0 else float("nan")


@dataclass(frozen=True)
class Recovered:
    """Unobserved labels that were called present, compared with the truth.

    Attributes:
        called: unobserved entries that were called present and whose truth is known.
        right: those that are present.
        missing: unobserved entries that are present.
    """

    called: int
    right: int
    missing: int

    @property
    def precision(self) -> float:
        """Share of the called labels that are right; NaN if none was called."""
        return self.right / self.called if self.called else float("nan")

    @property
    def recall(self) -> float:
        """Share of the missing labels that were called; NaN if none is missing."""
        return self.right / self.missing if self.missing else float("nan")


def recovered(called: ArrayLike, observed: ArrayLike, truth: ArrayLike) -> Recovered:
    """Compare what was called present with the truth, over entries that were not observed.

    Args:
        called: N×L bool, what a method or a threshold calls present.
        observed: N×L, the partial labels: 1 present, 0 absent, -1 unknown.
        truth: N×L, the complete labels; -1 where even they are unknown.

    Example:
        >>> recovered([[True, True, False]], [[1, -1, -1]], [[1, 1, 1]])
        Recovered(called=1, right=1, missing=2)
    """
    called, observed, truth = np.asarray(called, dtype=bool), np.asarray(observed), np.asarray(truth)
    if not called.shape == observed.shape == truth.shape:
        raise ValueError(f"Shapes {called.shape}, {observed.shape} and {truth.shape} must be the same.")
    unobserved = (observed == UNKNOWN) & np.isin(truth, (POSITIVE, NEGATIVE))
    missing = unobserved & (truth == POSITIVE)
    return Recovered(int((called & unobserved).sum()), int((called & missing).sum()), int(missing.sum()))
