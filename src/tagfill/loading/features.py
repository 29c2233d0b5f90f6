"""Batches of cached features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.contract import Batch
from tagfill.draws import generator
from tagfill.loading.cache import FeatureCache
from tagfill.loading.source import EVALUATION_BATCH, chunks, make_batch


class FeatureSource:
    """Batches from a feature cache; each visit of a training image draws one of its cached views.

    Args:
        dataset: whose images the cache holds.
        cache: the features.
        maps: read spatial features; otherwise pooled ones.
        seed: of the run.
        train_split: the split to train on.
    """

    def __init__(
        self, dataset: Dataset, cache: FeatureCache, *, maps: bool, seed: int, train_split: str = "train"
    ) -> None:
        self._dataset, self._cache, self._maps, self._seed = dataset, cache, maps, seed
        self._train_split = train_split

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Batches of the training split in the views of an epoch."""
        names = self._cache.weak_views
        for index in batches:
            drawn = [int(generator(self._seed, "cached view", epoch, int(i)).integers(len(names))) for i in index]
            yield self._batch(self._train_split, index, np.array(names)[drawn], "train")

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """These positions of a split, whole images."""
        for part in chunks(index, EVALUATION_BATCH):
            yield self._batch(split, part, np.full(len(part), "eval"), "eval")

    def _batch(self, split: str, index: NDArray[np.int64], views: NDArray[np.str_], name: str) -> Batch:
        inputs, geometry = self._cache.read(views, self._dataset.split(split)[index], maps=self._maps)
        return make_batch(index, self._dataset.labels(split).rows(index), inputs, geometry, name)
