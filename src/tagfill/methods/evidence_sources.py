"""Where the evidence about an unknown label comes from: the other labels of its image, and images like it.

Both ask memory for what they need, distances of classes or neighbours of images, and compute it from the features of a
frozen network unless a checkpoint or an earlier stage brought it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, Task
from tagfill.memory.class_distances import Distance, Prototype
from tagfill.memory.nearest import Search
from tagfill.methods.evidence import Array, from_images, from_labels

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
        self._neighbours = task.memory.neighbours(count=self._count)
        if not self._neighbours.ready:
            self._neighbours.fill(features(), search=self._search)

    def read(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array]:
        """d_I⁺ and d_I⁻, B×L; `inf` where no neighbour has such a label."""
        images, away = self._neighbours.read(index)
        if self._distance == "euclidean":  # of two vectors of length 1
            away = np.sqrt(2 * away)
        present, absent = (
            from_images(images, away, self._labels, state, self._nearest) for state in (POSITIVE, NEGATIVE)
        )
        return present, absent
