"""Collect predictions batch by batch and return them in the order of images.

Scores and labels are kept with the position of their image in the dataset and sorted by it at the end, so a metric has
the same bits for any batch size, order of batches and number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class GatheredPredictions:
    """All predictions, ascending by image.

    Attributes:
        index: N, positions of the images in the dataset.
        scores: N×L.
        labels: N×L, 1 present, 0 absent, -1 unknown.
    """

    index: NDArray[np.int64]
    scores: NDArray[np.floating]
    labels: NDArray[np.integer]


class Predictions:
    """Scores and labels of images, added in any order, each image once.

    Example:
        >>> predictions = Predictions()
        >>> predictions.update([2, 0], [[0.2], [0.9]], [[0], [1]])
        >>> predictions.update([1], [[0.4]], [[-1]])
        >>> every = predictions.compute()
        >>> every.index.tolist(), every.scores.tolist(), every.labels.tolist()
        ([0, 1, 2], [[0.9], [0.4], [0.2]], [[1], [-1], [0]])
    """

    def __init__(self) -> None:
        self._batches: list[GatheredPredictions] = []

    def update(self, index: ArrayLike, scores: ArrayLike, labels: ArrayLike) -> None:
        """Add a batch; its values are copied.

        Args:
            index: B positions of the images in the dataset.
            scores: B×L, arrays or tensors on the CPU without gradient.
            labels: B×L, 1 present, 0 absent, -1 unknown.

        Raises:
            ValueError: if the shapes disagree with each other or with earlier batches.
        """
        batch = GatheredPredictions(
            np.asarray(index).astype(np.int64), np.asarray(scores).copy(), np.asarray(labels).copy()
        )
        if (
            batch.scores.ndim != 2
            or batch.scores.shape != batch.labels.shape
            or batch.index.shape != (len(batch.scores),)
        ):
            raise ValueError(
                f"Index {batch.index.shape}, scores {batch.scores.shape} and labels {batch.labels.shape} must be "
                "(images,), (images, classes) and (images, classes)."
            )
        self._add([batch])

    def merge(self, other: Predictions) -> None:
        """Add the content of another accumulator, such as that of another process, which is not changed."""
        self._add(other._batches)

    def compute(self) -> GatheredPredictions:
        """All predictions added so far, ascending by image.

        Raises:
            ValueError: if nothing was added, or an image more than once.
        """
        if not self._batches:
            raise ValueError("No predictions were added; call update() for each batch first.")
        index = np.concatenate([batch.index for batch in self._batches])
        order = np.argsort(index, kind="stable")
        index = index[order]
        repeated = index[1:][index[1:] == index[:-1]]
        if len(repeated):
            raise ValueError(
                f"Image {repeated[0]} was added more than once ({len(repeated)} repeats in all); "
                "evaluate each image once, without a sampler that pads or repeats."
            )
        scores = np.concatenate([batch.scores for batch in self._batches])[order]
        labels = np.concatenate([batch.labels for batch in self._batches])[order]
        return GatheredPredictions(index, scores, labels)

    def _add(self, batches: list[GatheredPredictions]) -> None:
        for batch in batches:
            if self._batches and batch.scores.shape[1] != self._batches[0].scores.shape[1]:
                raise ValueError(
                    f"These predictions have {batch.scores.shape[1]} classes, "
                    f"earlier ones {self._batches[0].scores.shape[1]}."
                )
            self._batches.append(batch)
