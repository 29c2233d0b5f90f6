"""Batches that also tell where labels were seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import Batch
from tagfill.loading.marks import Locations
from tagfill.loading.source import Source


class MarkedSource:
    """A source whose training batches carry the points, boxes and masks of their images.

    Args:
        source: of the batches.
        locations: of the training split.
    """

    def __init__(self, source: Source, locations: Locations) -> None:
        self._source, self._locations = source, locations

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Batches of the training split, with marks."""
        for batch in self._source.train(batches, epoch):
            yield replace(batch, marks=self._locations.of(batch.index.numpy()))

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """These positions of a split, as they are."""
        return self._source.evaluate(split, index)
