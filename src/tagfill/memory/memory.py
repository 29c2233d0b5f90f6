"""The kinds of state that methods may ask for, by name, each with what it takes."""

from __future__ import annotations

from tagfill.memory.base import Stores
from tagfill.memory.heatmaps import Heatmaps, Rounding
from tagfill.memory.neighbors import ClassDistances, Neighbors
from tagfill.memory.sparse import ChangedLabels, Entries, FoundLabels, PseudoLabels
from tagfill.memory.statistics import Prior
from tagfill.memory.tables import Estimates, Scores, TableOptimizer, TopKScores


class Memory(Stores):
    """All state of one rank, one object per name, however many methods ask for it.

    The first who asks for a store settles its options; another who wants different ones is refused. For arguments
    see `Stores`.

    Example:
        >>> import numpy as np
        >>> from tagfill.contract import LabelMatrix
        >>> labels = LabelMatrix.from_dense(np.array([[1, -1], [-1, 0]], dtype=np.int8))
        >>> memory = Memory(labels, np.arange(2), seed=0)
        >>> memory.scores(momentum=0.8) is memory.scores(momentum=0.8)
        True
        >>> memory.sizes()
        {'scores': 8}
    """

    def scores(self, *, momentum: float, classes_per_image: int | None = None) -> Scores | TopKScores:
        """Running probabilities of each image and class, or of a few classes an image."""
        count = self._few(classes_per_image)
        options = {"momentum": momentum, "classes_per_image": count}
        if count is None:
            size = Scores.bytes(self._labels, self._shard)
            return self._get("scores", options, size, lambda: Scores(self._labels, self._shard, momentum=momentum))
        return self._get(
            "scores",
            options,
            TopKScores.bytes(self._shard, count),
            lambda: TopKScores(self._labels, self._shard, momentum=momentum, count=count),
        )

    def heatmaps(
        self, *, momentum: float, size: int, classes_per_image: int | None = None, rounding: Rounding = "nearest"
    ) -> Heatmaps:
        """Running class maps of each image, size×size, of all classes or of a few."""
        path = None if self._folder is None else self._folder / "heatmaps.u8"
        resume = self._disk is not None and "heatmaps" in self._disk[1]
        count = self._few(classes_per_image)
        return self._get(
            "heatmaps",
            {"momentum": momentum, "size": size, "classes_per_image": count, "rounding": rounding},
            Heatmaps.bytes(self._labels, self._shard, size, count),
            lambda: Heatmaps(
                self._labels,
                self._shard,
                momentum=momentum,
                size=size,
                path=path,
                resume=resume,
                count=count,
                rounding=rounding,
                seed=self._seed,
            ),
        )

    def estimates(self, *, optimizer: TableOptimizer = "dense_adam", classes_per_image: int | None = None) -> Estimates:
        """Trainable label estimates, of all classes or of a few an image."""
        count = self._few(classes_per_image)
        return self._get(
            "estimates",
            {"optimizer": optimizer, "classes_per_image": count},
            Estimates.bytes(self._labels, self._shard, optimizer, count),
            lambda: Estimates(self._labels, self._shard, seed=self._seed, optimizer=optimizer, count=count),
        )

    def pseudo_labels(self) -> PseudoLabels:
        """Labels that a method gave by itself; there are none at first."""
        return self._get(
            "pseudo_labels",
            {},
            PseudoLabels.bytes(self._labels, self._shard),
            lambda: PseudoLabels(self._labels, self._shard),
        )

    def entries(self, name: str, *, most: int | None = None) -> Entries:
        """A sparse set of at most so many (image, class) entries; it starts empty."""
        size = Entries.bytes(self._labels, self._shard, most)
        return self._get(name, {}, size, lambda: Entries(self._shard, self._labels.width))

    def neighbours(self, *, count: int) -> Neighbors:
        """The nearest images of each image; whoever finds them not ready fills them."""
        return self._get(
            "neighbours",
            {"count": count},
            Neighbors.bytes(self._labels, self._shard, count),
            lambda: Neighbors(self._labels, self._shard, count=count),
        )

    def class_distances(self, *, prototype: str, distance: str) -> ClassDistances:
        """Distances of classes; whoever finds them not ready fills them."""
        return self._get(
            "class_distances",
            {"prototype": prototype, "distance": distance},
            ClassDistances.bytes(self._labels.width),
            lambda: ClassDistances(self._labels.width),
        )

    def found_labels(self, *, limit: int) -> FoundLabels:
        """Pseudo-labels, at most `limit` an image."""
        size = FoundLabels.bytes(self._shard, self._labels.width, limit)
        return self._get("found_labels", {"limit": limit}, size, lambda: FoundLabels(self._shard, self._labels.width))

    def overlay(self, *, changes: float) -> ChangedLabels:
        """Labels that a method changed for good; `changes` are expected by the end, and it grows as they come."""
        size = ChangedLabels.bytes(changes)
        return self._get("overlay", {}, size, lambda: ChangedLabels(self._labels, self._shard))

    def prior(self) -> Prior:
        """The mean predicted probability of each class."""
        size = Prior.bytes(self._labels.width)
        return self._get("prior", {}, size, lambda: Prior(self._shard, self._labels.width))

    def _few(self, classes_per_image: int | None) -> int | None:
        """How many classes an image keeps; None for all, also where as many are asked for as there are."""
        few = classes_per_image is not None and classes_per_image < self._labels.width
        return classes_per_image if few else None
