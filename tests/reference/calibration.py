"""Platt's calibration with class offsets, minimised by SciPy on the penalised likelihood as it is written."""

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
