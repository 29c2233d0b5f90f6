"""How far classes are from each other, by what the images that show them look like to a frozen network.

    ψ(c)    = elementwise median (or mean) of the features, scaled to length 1, of the images with z_c = 1
    d(a, b) = 1 − cos(ψ(a), ψ(b))   or   ‖ψ(a) − ψ(b)‖

A class that no image is known to show has no ψ; its distances are 1. So are those of a ψ that is zero, which has no
direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import POSITIVE, LabelMatrix
from tagfill.memory.nearest import unit_rows
from tagfill.memory.shard import SavedPart

Prototype = Literal["median", "mean"]
Distance = Literal["cosine", "euclidean"]

_VALUES = 1 << 22  # features whose median is taken at a time


def prototypes(
    unit: NDArray[np.float32], labels: LabelMatrix, kind: Prototype = "median"
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """ψ of each class.

    Args:
        unit: N×D features with rows of length 1.
        labels: of the N images.
        kind: what is taken over the images of a class.

    Returns:
        L×D, zeros for a class without positives; and which classes have any, L.

    Example:
        >>> labels = LabelMatrix.from_dense(np.array([[1, -1], [1, 0]]))
        >>> psi, defined = prototypes(np.eye(2, dtype=np.float32), labels, "mean")
        >>> psi.tolist(), defined.tolist()
        ([[0.5, 0.5], [0.0, 0.0]], [True, False])
    """
    present = labels.values == POSITIVE
    image, label = labels.images()[present], labels.classes[present]
    order = np.argsort(label, kind="stable")
    image, bounds = image[order], np.searchsorted(label[order], np.arange(labels.width + 1))
    found = np.zeros((labels.width, unit.shape[1]), dtype=np.float32)
    middle = np.median if kind == "median" else np.mean
    for c in range(labels.width):
        shown = image[bounds[c] : bounds[c + 1]]
        step = max(1, _VALUES // max(len(shown), 1))
        for start in range(0, unit.shape[1] if len(shown) else 0, step):
            columns = np.arange(start, min(start + step, unit.shape[1]))
            found[c, columns] = middle(unit[shown[:, None], columns], axis=0)
    return found, np.diff(bounds) > 0


def distances(psi: NDArray[np.float32], defined: NDArray[np.bool_], kind: Distance = "cosine") -> NDArray[np.float32]:
    """The distance of each two classes, L×L.

    Args:
        psi: L×D.
        defined: L, which classes have a ψ; the others are at distance 1 of all.
        kind: of distance.

    Example:
        >>> distances(np.array([[1, 0], [0, 2], [0, 0]], np.float32), np.array([True, True, False])).tolist()
        [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
    """
    if kind == "cosine":
        unit = unit_rows(psi).astype(np.float64)
        away = 1 - unit @ unit.T
        defined = defined & (unit != 0).any(1)
    else:
        wide = psi.astype(np.float64)
        square = (wide * wide).sum(1)
        away = np.sqrt(np.maximum(square[:, None] + square - 2 * wide @ wide.T, 0))
    np.fill_diagonal(away, 0)
    both = defined[:, None] & defined
    return np.where(both, np.maximum(away, 0), 1).astype(np.float32)


class ClassDistances:
    """The distance of each two classes, the same on every rank."""

    def __init__(self, width: int) -> None:
        self.values = torch.ones(width, width)
        self.ready = False

    @staticmethod
    def bytes(width: int) -> int:
        """What the distances take."""
        return 4 * width * width

    def fill(self, unit: NDArray[np.float32], labels: LabelMatrix, *, prototype: Prototype, distance: Distance) -> None:
        """Compute the distances from the features of all training images, N×D with rows of length 1."""
        self.values = torch.from_numpy(distances(*prototypes(unit, labels, prototype), distance))
        self.ready = True

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Every process has all of it."""
        self.load_state_dict(dict(parts[0].tensors))

    def state_dict(self) -> dict[str, Tensor]:
        """The whole table."""
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back a saved table."""
        self.values = state["values"].clone()
        self.ready = True
