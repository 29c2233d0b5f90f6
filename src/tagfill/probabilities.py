"""Probabilities of logits, bit-identical everywhere they are shown, written or compared with a threshold.

    p = σ(u) = 1 / (1 + exp(−u)),   u = a·g + d·max(g − k, 0) + b_c

with the calibration of the model, b_c of each class and slopes a below and a + d > 0 above the knot k, or u = g without
one. Two slopes are needed because the logits of a class that is present are spread wider than those of one that is
absent, most of all if class maps are boosted.

A threshold is the probability of some validation image. The code that chooses it and the code that applies it must
compute that probability in the same way, or the image itself may fall below its own threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.rng import generator

COMPLETE_SHARE = 0.95  # share of known pairs from which labels count as complete
_MAX_STEPS, _TOLERANCE = 50, 1e-10  # of Newton's method
_KNOTS, _KNOT_PAIRS = (0.05, 0.1, 0.2, 0.3, 0.4), 200_000  # quantiles to try, and pairs to compare them on
_BLOCK = 1 << 20  # entries at a time, to bound the memory of double precision
_LARGEST, _INFINITY = 0x7F7FFFFF, 0x7F800000  # bits of the largest single-precision number, and of infinity

_Finite = Annotated[float, Field(allow_inf_nan=False)]


def sigmoid(logits: ArrayLike) -> NDArray[np.float64]:
    """σ in double precision, for logits of any shape and size.

    >>> sigmoid([-1e4, 0.0, 1e4])
    array([0. , 0.5, 1. ])
    """
    with np.errstate(over="ignore"):  # exp(−g) of a very negative g is infinite, so p is 0
        probability: NDArray[np.float64] = 1 / (1 + np.exp(-np.asarray(logits, dtype=np.float64)))
    return probability


class Calibration(BaseModel):
    """Turns logits into probabilities; saved with a model.

    Attributes:
        slope: a, below the knot.
        offset: b_c of each class.
        source: `measured` on complete labels, `estimated` from tags alone, or `none` if there was nothing to fit to.
        bend: d, by how much the slope changes at the knot; 0 is a straight line.
        knot: k, in units of the logits.

    >>> Calibration(slope=2.0, offset=(0.0, -2.0), source="measured")(np.array([[0.0, 1.0]]))
    array([[0.5, 0.5]])
    """

    model_config = ConfigDict(frozen=True)

    slope: _Finite
    offset: tuple[_Finite, ...]
    source: Literal["measured", "estimated", "none"]
    bend: _Finite = 0.0
    knot: _Finite = 0.0

    @classmethod
    def identity(cls, width: int) -> Calibration:
        """The calibration that changes nothing, for a number of classes."""
        return cls(slope=1.0, offset=(0.0,) * width, source="none")

    @property
    def fitted(self) -> bool:
        """Whether there was anything to fit to; if not, probabilities are the plain sigmoid."""
        return self.source != "none"

    @property
    def width(self) -> int:
        """Number of classes."""
        return len(self.offset)

    @property
    def savable(self) -> bool:
        """Whether a model can be saved with it: it was fitted, and a higher logit is a higher probability."""
        return self.fitted and self.slope > 0 and self.slope + self.bend > 0

    def adjusted(self, factor: float, shift: float) -> Calibration:
        """The calibration whose log odds are multiplied by a factor and shifted.

        >>> careful = Calibration(slope=1.0, offset=(0.0,), source="estimated").adjusted(0.5, -1.0)
        >>> bool(np.isclose(careful([[4.0]])[0, 0], sigmoid(0.5 * 4 - 1)))
        True
        """
        offset = tuple(factor * value + shift for value in self.offset)
        return self.model_copy(update={"slope": factor * self.slope, "bend": factor * self.bend, "offset": offset})

    def apply(self, logits: Any, *, sigmoid: Callable[[Any], Any], constant: Callable[[Any], Any]) -> Any:
        """The formula, for the arrays of any library.

        Args:
            logits: N×L.
            sigmoid: of that library.
            constant: turns a number or L numbers into an array of that library.
        """
        log_odds = constant(self.slope) * logits + constant(self.offset)
        if self.bend:
            beyond = logits - constant(self.knot)
            log_odds = log_odds + constant(self.bend / 2) * (beyond + abs(beyond))
        return sigmoid(log_odds)

    def __call__(self, logits: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of N×L logits."""
        found: NDArray[np.float64] = self.apply(
            np.asarray(logits, dtype=np.float64), sigmoid=sigmoid, constant=np.float64
        )
        return found


def probabilities(logits: NDArray[np.floating], calibration: Calibration | None = None) -> NDArray[np.float32]:
    """Probabilities in single precision.

    Args:
        logits: N×L; of any shape without a calibration.
        calibration: of the model; None for the plain sigmoid.

    >>> probabilities(np.array([[0.0, 100.0]]))
    array([[0.5, 1. ]], dtype=float32)
    """
    rounded = np.empty(logits.shape, dtype=np.float32)
    rows, turned = (logits.reshape(-1), sigmoid) if calibration is None else (logits, calibration)
    out = rounded.reshape(-1) if calibration is None else rounded
    step = max(1, _BLOCK // max(rows[:1].size, 1))
    for start in range(0, len(rows), step):
        out[start : start + step] = turned(rows[start : start + step])
    return rounded


def lowest_logits(thresholds: ArrayLike, calibration: Calibration | None = None) -> NDArray[np.float32]:
    """The lowest logit of each class whose probability reaches its threshold; infinity if none does.

    Converts thresholds between calibrations: a label at its threshold has at least the probability of this logit.

    Args:
        thresholds: L.
        calibration: of the probabilities; None for the plain sigmoid.

    >>> lowest_logits([0.5, 1.0], Calibration(slope=2.0, offset=(-2.0, 0.0), source="measured")).round(2)
    array([1.  , 8.66], dtype=float32)
    """
    wanted = np.asarray(thresholds, dtype=np.float64)
    low, high = np.full(wanted.shape, -_LARGEST), np.full(wanted.shape, _INFINITY)
    while (low < high).any():  # single-precision numbers in ascending order, counted from 0
        middle = (low + high) // 2
        reached = probabilities(_from_order(middle)[None], calibration)[0] >= wanted
        low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)
    return _from_order(high)


def _from_order(position: NDArray[np.int64]) -> NDArray[np.float32]:
    magnitude = np.abs(position).astype(np.uint32).view(np.float32)
    return np.where(position < 0, -magnitude, magnitude)


def calibrate(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> Calibration:
    """Fit a calibration to known labels.

    Args:
        logits: N×L.
        labels: N×L, 1 present, 0 absent, -1 unknown (ignored).

    Example:
        >>> sure = np.array([[9.0], [-9.0], [9.0], [-9.0]])
        >>> abs(round(calibrate(sure, np.array([[1], [0], [0], [1]])).slope, 2))  # half of these are wrong
        0.0
    """
    known = labels != UNKNOWN
    width = logits.shape[1]
    z = np.asarray(logits, dtype=np.float64)[known]
    y = (labels[known] == POSITIVE).astype(np.float64)
    if not len(y) or y.min() == y.max():
        return Calibration.identity(width)
    class_of = np.nonzero(known)[1]
    knot = _choose_knot(z, y)
    weights = _fit(_design(z, knot), y)
    base = weights @ _design(z, knot)
    deltas = np.zeros(width)
    for _ in range(_MAX_STEPS):
        p = sigmoid(base + deltas[class_of])
        gradient = np.bincount(class_of, weights=p - y, minlength=width) + deltas
        curvature = np.bincount(class_of, weights=p * (1 - p), minlength=width) + 1
        step = gradient / curvature
        deltas -= step
        if np.abs(step).max() < _TOLERANCE:
            break
    slope, offset = float(weights[0]), weights[1] + deltas
    bend = 0.0 if knot is None else float(weights[2])
    return Calibration(
        slope=slope, offset=tuple(offset.tolist()), source="measured", bend=bend, knot=0.0 if knot is None else knot
    )


def is_complete(labels: NDArray[np.integer]) -> bool:
    """Whether labels are complete enough to measure on: nearly all pairs are known, and both states occur."""
    known = labels != UNKNOWN
    return bool(known.mean() >= COMPLETE_SHARE) and bool((labels == POSITIVE).any() and (labels == NEGATIVE).any())


def _design(z: NDArray[np.float64], knot: float | None) -> NDArray[np.float64]:
    """The terms of the log odds: g, 1 and, with a knot, max(g − k, 0)."""
    terms = [z, np.ones_like(z)] if knot is None else [z, np.ones_like(z), np.maximum(z - knot, 0)]
    return np.stack(terms)


def _choose_knot(z: NDArray[np.float64], y: NDArray[np.float64]) -> float | None:
    """The knot with the highest likelihood, at a quantile of the logits of present labels; None for a straight line.

    Two more parameters must pay for themselves (Bayesian information criterion), and both slopes be positive.
    """
    if len(z) > _KNOT_PAIRS:  # drawn at random: every n-th pair of a matrix may belong to a few classes only
        drawn = generator(0, "calibration knot").choice(len(z), _KNOT_PAIRS, replace=False)
        z, y = z[drawn], y[drawn]
    best = _loss(_fit(_design(z, None), y) @ _design(z, None), y) - np.log(len(z))
    chosen = None
    for knot in np.unique(np.quantile(z[y == 1], _KNOTS)) if y.any() else ():
        weights = _fit(_design(z, knot), y)
        loss = _loss(weights @ _design(z, knot), y)
        if loss < best and weights[0] > 0 and weights[0] + weights[2] > 0:
            best, chosen = loss, float(knot)
    return chosen


def _loss(log_odds: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float((np.logaddexp(0, log_odds) - y * log_odds).sum())


def _fit(design: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of the terms by Newton's method; a weak prior at the plain sigmoid keeps them finite."""
    prior = np.eye(len(design))[0]
    weights: NDArray[np.float64] = prior.copy()
    strength = 1e-3 * np.eye(len(design))
    for _ in range(_MAX_STEPS):
        p = sigmoid(weights @ design)
        gradient = design @ (p - y) + strength @ (weights - prior)
        curvature = (design * (p * (1 - p))) @ design.T + strength
        step = np.linalg.solve(curvature, gradient)
        largest = np.abs(step).max()
        weights = weights - step * min(1.0, 2.0 / max(largest, 1e-12))  # limit long steps, which may overshoot
        if largest < _TOLERANCE:
            break
    return weights


def measure_calibration(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> Calibration | None:
    """The calibration to save with a model: measured on complete labels; None if they are not, or scores are useless.

    Args:
        logits: N×L of a validation split.
        labels: N×L, 1 present, 0 absent, -1 unknown.
    """
    if not is_complete(labels):
        return None
    calibration = calibrate(logits, labels)
    return calibration if calibration.savable else None
