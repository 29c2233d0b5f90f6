"""Calibration: whether predicted probabilities match observed frequencies.

    ECE = Σ_b (n_b / n) |share of positives in bin b − mean probability in bin b|

Bins are equally wide. Scores outside [0, 1] raise an error; nothing is guessed to be a logit.

Naeini et al., Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.labels import POSITIVE, UNKNOWN

_ENTRIES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Reliability:
    """Predicted probabilities and observed frequencies, bin by bin.

    Attributes:
        count: entries of each bin.
        predicted: mean probability of each bin, NaN if empty.
        present: share of positives of each bin, NaN if empty.
    """

    count: NDArray[np.int64]
    predicted: NDArray[np.float64]
    present: NDArray[np.float64]

    @property
    def error(self) -> float:
        """Expected calibration error; NaN if nothing is known."""
        if not self.count.sum():
            return float("nan")
        gaps = np.nan_to_num(np.abs(self.present - self.predicted))
        return float((self.count * gaps).sum() / self.count.sum())


def reliability(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15) -> Reliability:
    """Count the known entries by their probability.

    Args:
        probabilities: any shape, in [0, 1].
        labels: of the same shape, 1 present, 0 absent, -1 unknown.
        bins: number of equally wide bins; 1 belongs to the last.

    Example:
        >>> round(reliability([0.9, 0.8, 0.2], [1, 0, 0], bins=2).error, 4)
        0.3
    """
    probabilities, labels = np.asarray(probabilities), np.asarray(labels)
    if probabilities.shape != labels.shape:
        raise ValueError(f"Probabilities {probabilities.shape} and labels {labels.shape} must have the same shape.")
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("Calibration is about probabilities in [0, 1]; apply the sigmoid to logits first.")
    count, sums = np.zeros(bins, np.int64), np.zeros((2, bins))
    flat, known = probabilities.ravel(), labels.ravel() != UNKNOWN
    for start in range(0, flat.size, _ENTRIES_AT_ONCE):  # so that scores are not copied whole
        part = slice(start, start + _ENTRIES_AT_ONCE)
        values = flat[part][known[part]].astype(np.float64)
        positive = labels.ravel()[part][known[part]] == POSITIVE
        place = np.minimum((values * bins).astype(np.int64), bins - 1)
        count += np.bincount(place, minlength=bins)
        sums += [np.bincount(place, weights=weights, minlength=bins) for weights in (values, positive)]
    predicted, present = (np.divide(s, count, out=np.full(bins, np.nan), where=count > 0) for s in sums)
    return Reliability(count, predicted, present)


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15) -> float:
    """Expected calibration error, see `reliability`.

    Example:
        >>> expected_calibration_error([1.0, 0.0], [1, 0])
        0.0
    """
    return reliability(probabilities, labels, bins=bins).error
