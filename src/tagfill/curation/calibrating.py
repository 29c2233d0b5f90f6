"""From scores to probabilities that mean what they say.

    p(present) = σ(a·z + b + δ_c)

`a` and `b` are shared by all classes and fitted by maximum likelihood on known labels (Platt, Probabilistic Outputs for
Support Vector Machines, 1999); δ_c is an offset of a class, held near zero by a normal prior of unit variance, so that
a class with a handful of labels is not believed beyond them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.metrics import expected_calibration_error
from tagfill.probabilities import sigmoid

_STEPS = 50
_ENOUGH = 1e-10


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities.

    Attributes:
        slope: a.
        offset: b + δ_c of each class.
        fitted: False if there were no labels to fit to; the probabilities are then the plain sigmoid.
    """

    slope: float
    offset: NDArray[np.float64]
    fitted: bool = True

    def __call__(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probabilities of N×L logits."""
        return sigmoid(self.slope * np.asarray(logits, dtype=np.float64) + self.offset)


def calibrate(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> Calibration:
    """Fit to known labels.

    Args:
        logits: N×L.
        labels: N×L, 1 present, 0 absent, -1 unknown, which is left out.

    Example:
        >>> sure = np.array([[9.0], [-9.0], [9.0], [-9.0]])
        >>> abs(round(calibrate(sure, np.array([[1], [0], [0], [1]])).slope, 2))  # and right half of the time
        0.0
    """
    known = labels >= 0
    width = logits.shape[1]
    z = np.asarray(logits, dtype=np.float64)[known]
    y = (labels[known] == 1).astype(np.float64)
    if not len(y) or y.min() == y.max():
        return Calibration(1.0, np.zeros(width), fitted=False)
    slope, offset = _fit(z, y)
    class_of = np.nonzero(known)[1]
    base = slope * z + offset
    deltas = np.zeros(width)
    for _ in range(_STEPS):
        p = sigmoid(base + deltas[class_of])
        gradient = np.bincount(class_of, weights=p - y, minlength=width) + deltas
        curvature = np.bincount(class_of, weights=p * (1 - p), minlength=width) + 1
        step = gradient / curvature
        deltas -= step
        if np.abs(step).max() < _ENOUGH:
            break
    return Calibration(slope, offset + deltas)


def calibration_errors(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> tuple[float, float]:
    """Expected calibration error before and after; each half of the images is judged by a fit to the other half."""
    before = expected_calibration_error(sigmoid(logits), labels)
    after = np.empty(logits.shape)
    for half in (0, 1):
        after[half::2] = calibrate(logits[1 - half :: 2], labels[1 - half :: 2])(logits[half::2])
    return before, expected_calibration_error(after, labels)


def _fit(z: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Slope and offset by Newton's method, with a faint pull towards no change, which separable labels need."""
    design = np.stack([z, np.ones_like(z)])
    weights, rest = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    faint = np.diag([1e-3, 1e-3])
    for _ in range(_STEPS):
        p = sigmoid(weights @ design)
        gradient = design @ (p - y) + faint @ (weights - rest)
        curvature = (design * (p * (1 - p))) @ design.T + faint
        step = np.linalg.solve(curvature, gradient)
        largest = np.abs(step).max()
        weights = weights - step * min(1.0, 2.0 / max(largest, 1e-12))  # a long step may overshoot
        if largest < _ENOUGH:
            break
    return float(weights[0]), float(weights[1])
