"""Which distances mean present and absent, chosen on images whose labels are known.

    d⁺  the distance that takes in most, of those up to which at least the share `precision` of what is near is present
    d⁻  the smallest distance beyond which at most the share `missed` of what is present lies; above d⁺

Distances are counted in steps of 0.001, so the memory does not depend on the number of images, and counts of several
processes add up.


How near an unknown label is to known ones, and the temperature that follows: the distances of Soft Exposure.

    d_L⁺(c, x) = min d(c, c') over the classes c' known to be present in image x; d_L⁻ over those known to be absent
    d_I⁺(c, x) = min d(x, x') over the k nearest images x' that are known to show c; d_I⁻ over those known not to
    d^±        = min(d_L^±, d_I^±), where 1 stands for what does not exist
    T          = +exp(β (1 − d⁺)) + γ  if d⁺ < d⁻,  else  −exp(β (1 − d⁻)) + γ

Before T, d⁺ and d⁻ are divided by their maximum over the unknown labels of the image. As printed, a label with near
evidence is almost left out (|T| = 148 at d = 0) and one with far evidence is a hard target (|T| = 1 at d = 1). With
temperature="inverse", |T| = exp(β d), it is the other way round. Everything is computed for a batch at a time from the
distances of classes (L×L) and the neighbours of images (n×k).

`inf` stands for evidence that does not exist, until distances are combined.

Where the evidence about an unknown label comes from: the other labels of its image, and images like it.

Both ask memory for what they need, distances of classes or neighbours of images, and compute it from the features of a
frozen network unless a checkpoint or an earlier stage brought it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import Ranks, Task
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.memory.neighbors import Distance, Prototype, Search

_STEPS = 1000  # of a distance of 1
_LARGEST = 2


@dataclass(frozen=True)
class Thresholds:
    """Distances, and how they did where they were chosen.

    Attributes:
        positive: d⁺; nothing is near enough if it is negative.
        negative: d⁻.
        precision: share of what lies within d⁺ that is present; NaN if nothing does.
        recall: share of what is present that lies within d⁺.
        missed: share of what is present that lies beyond d⁻.
    """

    positive: float
    negative: float
    precision: float
    recall: float
    missed: float


class DistanceCounts:
    """How many known labels of either kind lie at each distance."""

    def __init__(self) -> None:
        self._counts = torch.zeros(2, _LARGEST * _STEPS + 1, dtype=torch.int64)

    def add(self, distances: Tensor, labels: Tensor) -> None:
        """Distances and labels, B×L; what is unknown or farther than any place can be does not count."""
        for value in (NEGATIVE, POSITIVE):
            chosen = distances[(labels == value) & (distances <= _LARGEST)].cpu()
            steps = (chosen.clamp(min=0).double() * _STEPS).ceil().long()
            self._counts[value] += torch.bincount(steps, minlength=self._counts.shape[1])

    def share(self, ranks: Ranks) -> None:
        """Add up what all processes counted."""
        self._counts = ranks.sum(self._counts)

    def __len__(self) -> int:
        """The number of known labels."""
        return int(self._counts.sum())

    def choose(self, positive: float | None, negative: float | None, *, precision: float, missed: float) -> Thresholds:
        """The two distances; one that is given stays as it is.

        Args:
            positive: d⁺, None to choose it.
            negative: d⁻, None to choose it.
            precision: that the near ones must have.
            missed: the share of present ones that may lie beyond d⁻.
        """
        absent, present = (self._counts[value].cumsum(0).double() for value in (NEGATIVE, POSITIVE))
        near, everything = absent + present, present[-1].clamp(min=1)
        if positive is None:
            good = torch.nonzero((near > 0) & (present >= precision * near))
            tight = int(torch.searchsorted(near, near[int(good[-1])])) if len(good) else -1
            positive = tight / _STEPS
        if negative is None:
            beyond = (present[-1] - present) / everything
            first = int(torch.nonzero(beyond <= missed)[0])
            negative = max(first / _STEPS, positive + 1 / _STEPS)
        at, far = (min(max(round(value * _STEPS), -1), len(near) - 1) for value in (positive, negative))
        inside = (float(present[at]), float(near[at])) if at >= 0 else (0.0, 0.0)
        return Thresholds(
            positive,
            negative,
            inside[0] / inside[1] if inside[1] else float("nan"),
            inside[0] / float(everything),
            float((present[-1] - (present[far] if far >= 0 else 0)) / everything),
        )


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


Reduce = Literal["min", "median5"]
NEAREST = {"min": 1, "median5": 5}


class KnownLabels:
    """Distances of an unknown label to the labels that are known of its image.

    Args:
        prototype: of a class.
        distance: of two classes.
        reduce: what is taken of several distances.
    """

    def __init__(self, prototype: Prototype, distance: Distance, reduce: Reduce) -> None:
        self._prototype: Prototype = prototype
        self._distance: Distance = distance
        self._nearest = NEAREST[reduce]

    def setup(self, task: Task, features: Callable[[], NDArray[np.float32]]) -> None:
        """Have the distances of classes; `features` gives N×D rows of length 1."""
        self._classes = task.memory.class_distances(prototype=self._prototype, distance=self._distance)
        if not self._classes.ready:
            self._classes.fill(features(), task.labels, prototype=self._prototype, distance=self._distance)

    def read(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array]:
        """d_L⁺ and d_L⁻, B×L; `inf` where the image has no such label."""
        distances = self._classes.values.numpy()
        present, absent = (from_labels(distances, known == state, self._nearest) for state in (POSITIVE, NEGATIVE))
        return present, absent


class AlikeImages:
    """Distances of an image to those of its nearest images that know a label.

    Args:
        count: k, neighbours of an image.
        distance: of two images.
        reduce: what is taken of several distances.
        search: how neighbours are found.
    """

    def __init__(self, count: int, distance: Distance, reduce: Reduce, search: Search) -> None:
        self._count, self._distance, self._nearest = count, distance, NEAREST[reduce]
        self._search: Search = search

    def setup(self, task: Task, features: Callable[[], NDArray[np.float32]]) -> None:
        """Have the neighbours; `features` gives N×D rows of length 1."""
        self._labels = task.labels
        self._neighbors = task.memory.neighbors(count=self._count)
        if not self._neighbors.ready:
            self._neighbors.fill(features(), search=self._search)

    def read(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array]:
        """d_I⁺ and d_I⁻, B×L; `inf` where no neighbour has such a label."""
        images, away = self._neighbors.read(index)
        if self._distance == "euclidean":  # of two vectors of length 1
            away = np.sqrt(2 * away)
        present, absent = (
            from_images(images, away, self._labels, state, self._nearest) for state in (POSITIVE, NEGATIVE)
        )
        return present, absent
