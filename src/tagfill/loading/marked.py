"""Batches that also tell where labels were seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import Batch
from tagfill.loading.locations import Locations
from tagfill.loading.source import TRAINING, Source


class MarkedSource:
    """A source whose batches of training images carry the points, boxes and masks of those images.

    Args:
        source: of the batches.
        locations: of the training split.
    """

    def __init__(self, source: Source, locations: Locations) -> None:
        self._source, self._locations = source, locations

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Batches of the training split, with marks."""
        return self._marked(self._source.train(batches, epoch))

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """These positions of a split, as they are; with marks if it is the training split."""
        batches = self._source.evaluate(split, index)
        return self._marked(batches) if split == TRAINING else batches

    def _marked(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield replace(batch, marks=self._locations.of(batch.index.numpy()))
