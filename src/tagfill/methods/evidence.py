"""How near an unknown label is to known ones, and the temperature that follows: the distances of Soft Exposure.

    d_L⁺(c, x) = min d(c, c') over the classes c' known to be present in image x; d_L⁻ over those known to be absent
    d_I⁺(c, x) = min d(x, x') over the k nearest images x' that are known to show c; d_I⁻ over those known not to
    d^±        = min(d_L^±, d_I^±), where 1 stands for what does not exist
    T          = +exp(β (1 − d⁺)) + γ  if d⁺ < d⁻,  else  −exp(β (1 − d⁻)) + γ

Before T, d⁺ and d⁻ are divided by their maximum over the unknown labels of the image. As printed, a label with near
evidence is almost left out (|T| = 148 at d = 0) and one with far evidence is a hard target (|T| = 1 at d = 1). With
temperature="inverse", |T| = exp(β d), it is the other way round. Everything is computed for a batch at a time from the
distances of classes (L×L) and the neighbours of images (n×k).

`inf` stands for evidence that does not exist, until distances are combined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import LabelMatrix

Array = NDArray[np.float32]
Temperature = Literal["paper", "inverse"]
Normalise = Literal["joint", "separate"]

_ENTRIES = 1 << 22  # distances that are looked at together
_HOTTEST = 69.0  # as a power of e: 1e30 leaves a label out as well as infinity, and is a number


def from_labels(distances: Array, known: NDArray[np.bool_], nearest: int = 1) -> Array:
    """d_L: how near each class is to the known ones of its image.

    Args:
        distances: L×L, of classes.
        known: B×L, the classes that count: those known to be present, or those known to be absent.
        nearest: the median of so many smallest distances is taken; 1 is their minimum.

    Returns:
        B×L; `inf` throughout an image that has no such class.

    Example:
        >>> distances = np.array([[0, 0.2, 0.9], [0.2, 0, 0.5], [0.9, 0.5, 0]], np.float32)
        >>> from_labels(distances, np.array([[True, True, False]]))[0, 2].item()
        0.5
    """
    counts = known.sum(1)
    most, width = int(counts.max(initial=0)), known.shape[1]
    result = np.full(known.shape, np.inf, dtype=np.float32)
    if most == 0:
        return result
    step = max(1, _ENTRIES // (most * width))
    for start in range(0, len(known), step):
        part, count = known[start : start + step], counts[start : start + step]
        classes = np.argsort(~part, axis=1, kind="stable")[:, :most]  # the known ones come first
        away = distances[classes]  # B×most×L
        away[np.arange(most) >= count[:, None]] = np.inf
        if nearest > 1:
            away.sort(axis=1)
            taken = np.minimum(count, nearest)
            rows = np.arange(len(part))
            middle = away[rows, np.maximum(taken - 1, 0) // 2], away[rows, np.minimum(taken // 2, most - 1)]
            result[start : start + step] = (middle[0] + middle[1]) / 2
        else:
            result[start : start + step] = away.min(1)
    return result


def from_images(index: NDArray[np.int64], distance: Array, labels: LabelMatrix, state: int, nearest: int = 1) -> Array:
    """d_I: how near the nearest image is whose label of each class is known to be `state`.

    Args:
        index: B×k neighbours of each image.
        distance: B×k, of each.
        labels: of all training images.
        state: 1 for d⁺, 0 for d⁻.
        nearest: the median of so many smallest distances is taken; 1 is their minimum.

    Returns:
        B×L; `inf` where no neighbour has such a label.

    Example:
        >>> labels = LabelMatrix.from_dense(np.array([[-1, -1], [1, 0], [1, -1]]))
        >>> from_images(np.array([[1, 2]]), np.array([[0.2, 0.1]], np.float32), labels, state=1).tolist()
        [[0.10000000149011612, inf]]
    """
    result = np.full(len(index) * labels.width, np.inf, dtype=np.float32)
    entry, neighbour = labels.entries(index.reshape(-1))
    chosen = labels.values[entry] == state
    entry, neighbour = entry[chosen], neighbour[chosen]
    away = distance.reshape(-1)[neighbour]
    place = (neighbour // max(index.shape[1], 1)) * labels.width + labels.classes[entry]
    order = np.lexsort((away, place))
    place, away = place[order], away[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(len(place), 1), dtype=bool), place[1:] != place[:-1]]))
    taken = np.minimum(np.diff(np.append(first, len(place))), nearest)
    result[place[first]] = (away[first + (taken - 1) // 2] + away[first + taken // 2]) / 2
    return result.reshape(len(index), labels.width)


@dataclass(frozen=True)
class Softness:
    """From distances to temperatures.

    Attributes:
        beta: β, how much hotter near evidence is than far evidence.
        gamma: γ, added to every temperature; below 1, or one could be zero.
        temperature: "paper": hot, and so soft, where evidence is near; "inverse": where it is far.
        normalise: divide d⁺ and d⁻ of an image by the maximum over both ("joint"), or each by its own ("separate").
    """

    beta: float = 5.0
    gamma: float = 0.0
    temperature: Temperature = "paper"
    normalise: Normalise = "joint"

    def temperatures(self, present: Array, absent: Array, asked: NDArray[np.bool_]) -> Array:
        """T of each unknown label.

        Args:
            present: B×L, d⁺; `inf` where there is none, which counts as 1.
            absent: B×L, d⁻.
            asked: B×L, the unknown labels that get a temperature, and over which the maximum is taken.

        Returns:
            B×L; 0 where none was asked for.

        Example:
            >>> d = np.array([[0.0, 1.0]], np.float32)
            >>> Softness().temperatures(d, np.ones((1, 2), np.float32), np.array([[True, True]])).round(3).tolist()
            [[148.41299438476562, -1.0]]
        """
        pair = np.stack([present, absent]).astype(np.float64)
        pair = np.where(asked, np.where(np.isinf(pair), 1, pair), 0)
        top = pair.max(axis=(0, 2) if self.normalise == "joint" else 2, initial=0, keepdims=True)
        near, far = pair / np.where(top > 0, top, 1)
        positive = near < far  # a tie is a negative
        away = np.where(positive, near, far)
        power = self.beta * (away if self.temperature == "inverse" else 1 - away)
        size = np.exp(np.minimum(power, _HOTTEST))
        return np.where(asked, np.where(positive, size, -size) + self.gamma, 0).astype(np.float32)
