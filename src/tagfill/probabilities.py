"""Probabilities of logits, bit-identical everywhere they are shown, written or compared with a threshold.

    p = σ(g) = 1 / (1 + exp(−g))

A threshold is the probability of some validation image. The code that chooses it and the code that applies it must
compute that probability in the same way, or the image itself may fall below its own threshold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_BLOCK = 1 << 20  # entries at a time, to bound the memory of double precision


def sigmoid(logits: ArrayLike) -> NDArray[np.float64]:
    """σ in double precision, for logits of any shape and size.

    >>> sigmoid([-1e4, 0.0, 1e4])
    array([0. , 0.5, 1. ])
    """
    with np.errstate(over="ignore"):  # exp(−g) of a very negative g is infinite, so p is 0
        probability: NDArray[np.float64] = 1 / (1 + np.exp(-np.asarray(logits, dtype=np.float64)))
    return probability


def probabilities(logits: NDArray[np.floating]) -> NDArray[np.float32]:
    """σ rounded to single precision, in the shape of the logits.

    >>> probabilities(np.array([[0.0, 100.0]]))
    array([[0.5, 1. ]], dtype=float32)
    """
    flat = logits.reshape(-1)
    rounded = np.empty(flat.shape, dtype=np.float32)
    for start in range(0, len(flat), _BLOCK):
        rounded[start : start + _BLOCK] = sigmoid(flat[start : start + _BLOCK])
    return rounded.reshape(logits.shape)
