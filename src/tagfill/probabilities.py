"""Probabilities of logits, bit-identical everywhere they are shown, written or compared with a threshold.

    p = σ(a·g + b_c) = 1 / (1 + exp(−a·g − b_c))

with the calibration of the model, a > 0 and b_c of each class, or a = 1 and b_c = 0 without one.

A threshold is the probability of some validation image. The code that chooses it and the code that applies it must
compute that probability in the same way, or the image itself may fall below its own threshold.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict

_BLOCK = 1 << 20  # entries at a time, to bound the memory of double precision


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
        slope: a.
        offset: b_c of each class.
        source: `measured` on complete labels, `estimated` from tags alone, or `none` if there was nothing to fit to.

    >>> Calibration(slope=2.0, offset=(0.0, -2.0), source="measured")(np.array([[0.0, 1.0]]))
    array([[0.5, 0.5]])
    """

    model_config = ConfigDict(frozen=True)

    slope: float
    offset: tuple[float, ...]
    source: Literal["measured", "estimated", "none"]

    @classmethod
    def identity(cls, width: int) -> Calibration:
        """The calibration that changes nothing, for a number of classes."""
        return cls(slope=1.0, offset=(0.0,) * width, source="none")

    @property
    def fitted(self) -> bool:
        """Whether there was anything to fit to; if not, probabilities are the plain sigmoid."""
        return self.source != "none"

    def __call__(self, logits: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of N×L logits."""
        return sigmoid(self.slope * np.asarray(logits, dtype=np.float64) + np.asarray(self.offset))


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
