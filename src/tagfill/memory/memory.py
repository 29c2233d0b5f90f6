"""The kinds of state that methods may ask for, by name."""

from __future__ import annotations

from tagfill.deprecation import warn_renamed
from tagfill.memory.base import NamedStores
from tagfill.memory.estimates import EstimateOptimizer, Estimates
from tagfill.memory.heatmaps import Heatmaps, Rounding
from tagfill.memory.neighbors import ClassDistances, Neighbors
from tagfill.memory.pseudo_labels import ChangedLabels, FoundLabels, PseudoLabels
from tagfill.memory.scores import EntrySet, Scores, TopKScores
from tagfill.memory.statistics import Prior


class Memory(NamedStores):
    """All state of one rank, one object per name, shared by all methods that ask for it.

    The first method to ask for a store determines its options; another that wants different ones is refused. For
    arguments see `NamedStores`.

    Example:
        >>> import numpy as np
        >>> from tagfill.labels import LabelMatrix
        >>> labels = LabelMatrix.from_dense(np.array([[1, -1], [-1, 0]], dtype=np.int8))
        >>> memory = Memory(labels, np.arange(2), seed=0)
        >>> memory.scores(momentum=0.8) is memory.scores(momentum=0.8)
        True
        >>> memory.sizes()
        {'scores': 8}
    """

    def scores(self, *, momentum: float, classes_per_image: int | None = None) -> Scores | TopKScores:
        """Running probabilities of each image and class, or of a few classes per image."""
        labels, shard, count = self._labels, self._shard, self._count(classes_per_image)
        options = {"momentum": momentum, "classes_per_image": count}
        if count is None:
            return self._get("scores", options, lambda: Scores(labels, shard, momentum=momentum))
        return self._get("scores", options, lambda: TopKScores(labels, shard, momentum=momentum, count=count))

    def heatmaps(
        self, *, momentum: float, size: int, classes_per_image: int | None = None, rounding: Rounding = "nearest"
    ) -> Heatmaps:
        """Running class maps of each image, size×size, of all classes or of a few."""
        count = self._count(classes_per_image)
        return self._get(
            "heatmaps",
            {"momentum": momentum, "size": size, "classes_per_image": count, "rounding": rounding},
            lambda: Heatmaps(
                self._labels,
                self._shard,
                momentum=momentum,
                size=size,
                path=None if self._folder is None else self._folder / "heatmaps.u8",
                resume=self._disk is not None and "heatmaps" in self._disk[1],
                count=count,
                rounding=rounding,
                seed=self._seed,
            ),
        )

    def estimates(
        self, *, optimizer: EstimateOptimizer = "dense_adam", classes_per_image: int | None = None
    ) -> Estimates:
        """Trainable label estimates, of all classes or of a few per image."""
        count = self._count(classes_per_image)
        return self._get(
            "estimates",
            {"optimizer": optimizer, "classes_per_image": count},
            lambda: Estimates(self._labels, self._shard, seed=self._seed, optimizer=optimizer, count=count),
        )

    def pseudo_labels(self) -> PseudoLabels:
        """Dense pseudo-labels; there are none at first."""
        return self._get("pseudo_labels", {}, lambda: PseudoLabels(self._labels, self._shard))

    def found_labels(self, *, limit: int) -> FoundLabels:
        """Pseudo-labels with the map cells they come from, at most `limit` per image."""
        return self._get(
            "found_labels", {"limit": limit}, lambda: FoundLabels(self._shard, self._labels.width, limit=limit)
        )

    def overlay(self, *, changes: float) -> ChangedLabels:
        """Labels that a method changed for good; `changes` are expected by the end, and it grows as they come."""
        return self._get("overlay", {}, lambda: ChangedLabels(self._labels, self._shard, changes=changes))

    def entries(self, name: str, *, most: int | None = None) -> EntrySet:
        """A set of (image, class) entries under a name of its own, at most `most`; it is empty at first."""
        return self._get(name, {}, lambda: EntrySet(self._shard, self._labels.width, most=most))

    def neighbors(self, *, count: int) -> Neighbors:
        """The nearest images of each image; call `fill` if they are not `ready`."""
        return self._get(
            "neighbours",  # as checkpoints call it
            {"count": count},
            lambda: Neighbors(self._labels, self._shard, count=count),
        )

    def neighbours(self, *, count: int) -> Neighbors:
        """The old name of `neighbors`."""
        warn_renamed("Memory.neighbours", "Memory.neighbors")
        return self.neighbors(count=count)

    def class_distances(self, *, prototype: str, distance: str) -> ClassDistances:
        """Distances of classes; call `fill` if they are not `ready`."""
        return self._get(
            "class_distances",
            {"prototype": prototype, "distance": distance},
            lambda: ClassDistances(self._shard, self._labels.width),
        )

    def prior(self) -> Prior:
        """The mean predicted probability of each class."""
        return self._get("prior", {}, lambda: Prior(self._shard, self._labels.width))

    def _count(self, classes_per_image: int | None) -> int | None:
        """Classes that an image keeps; None for all, also if as many are asked for as there are."""
        few = classes_per_image is not None and classes_per_image < self._labels.width
        return classes_per_image if few else None
