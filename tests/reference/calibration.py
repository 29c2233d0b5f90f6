"""Platt's calibration with class offsets and a bend, minimized by SciPy on the penalized likelihood as it is."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize


def offsets(z, y, classes, width, slope, offset):
    """δ of each class for a given slope and offset: likelihood plus ½δ²."""

    def loss(delta):
        total = 0.0
        for score, present, label in zip(z, y, classes, strict=True):
            x = slope * score + offset + delta[label]
            total += np.log1p(np.exp(-abs(x))) + max(x, 0) - present * x
        return total + 0.5 * float(np.sum(delta**2))

    return minimize(loss, np.zeros(width), tol=1e-12).x


def slope_and_offset(z, y):
    """a and b: likelihood plus the faint pull 0.0005·((a−1)² + b²)."""

    def loss(weights):
        x = weights[0] * z + weights[1]
        plain = np.sum(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0) - y * x)
        return float(plain + 0.0005 * ((weights[0] - 1) ** 2 + weights[1] ** 2))

    return minimize(loss, np.array([1.0, 0.0]), tol=1e-12).x


def bent(z, y, quantiles=(0.05, 0.1, 0.2, 0.3, 0.4)):
    """a, b, d and k of the log odds a·g + b + d·max(g − k, 0); d = 0 and no k if a straight line is as good.

    k is a quantile of the scores of present labels. A bend has two parameters more, each of which must raise the
    log-likelihood by half the logarithm of the number of scores.
    """

    def likelihood(weights, knot):
        total = 0.0
        for score, present in zip(z, y, strict=True):
            x = weights[0] * score + weights[1] + weights[2] * max(score - knot, 0.0)
            total += present * x - max(x, 0.0) - np.log1p(np.exp(-abs(x)))
        return total

    def loss(weights, knot):
        pull = (weights[0] - 1) ** 2 + sum(weight**2 for weight in weights[1:])
        return 0.0005 * pull - likelihood([*weights, 0.0][:3], knot)

    best = [*slope_and_offset(z, y), 0.0]
    chosen, highest = None, likelihood(best, 0.0) + 2 * 0.5 * np.log(len(z))
    for knot in np.quantile([score for score, present in zip(z, y, strict=True) if present], quantiles):
        weights = minimize(loss, np.array([1.0, 0.0, 0.0]), args=(knot,), tol=1e-10).x
        if likelihood(weights, knot) > highest and weights[0] > 0 and weights[0] + weights[2] > 0:
            best, chosen, highest = weights, knot, likelihood(weights, knot)
    return (*best, chosen)
