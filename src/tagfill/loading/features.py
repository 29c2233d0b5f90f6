"""Batches of cached features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.contract import Batch
from tagfill.draws import words
from tagfill.errors import ImageError, TagfillError
from tagfill.loading.cache import FeatureCache
from tagfill.loading.source import EVALUATION_BATCH, TRAINING, chunks


def _ignore(error: ImageError) -> None:
    """It was said when the cache was made."""


class FeatureSource:
    """Batches from a feature cache; each visit of a training image draws one of its cached views, or a pair of them.

    Images that could not be decoded when the cache was made are left out.

    Args:
        dataset: whose images the cache holds.
        cache: the features.
        maps: read spatial features; otherwise pooled ones.
        tokens: read class tokens instead of either; the cache must hold them.
        seed: of the run.
        pairs: training batches hold a weak and a strong view of each image, one view after the other.
        on_bad: told about each image that is left out of its batch; by default nobody is.
    """

    def __init__(
        self,
        dataset: Dataset,
        cache: FeatureCache,
        *,
        maps: bool,
        tokens: bool = False,
        seed: int,
        pairs: bool = False,
        on_bad: Callable[[ImageError], None] = _ignore,
    ) -> None:
        self._dataset, self._cache, self._maps, self._seed = dataset, cache, maps and not tokens, seed
        self._tokens = tokens
        if tokens:
            cache.require_tokens()
        self._pairs, self._on_bad = pairs, on_bad
        self._missing = {image.row: image for image in cache.manifest.missing}

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Batches of the training split in the views of an epoch."""
        sets = self._view_sets()
        roles = ("weak", "strong") if self._pairs else ("train",)
        kept = [self._kept(TRAINING, index) for index in batches]
        everything = np.concatenate([np.empty(0, np.int64), *kept])
        drawn = (words(self._seed, "cached view", epoch, everything) % np.uint64(len(sets))).astype(np.int64)
        ends = np.cumsum([len(index) for index in kept])
        for index, which in zip(kept, np.split(drawn, ends[:-1]), strict=True):
            yield self._batch(TRAINING, index, sets, which, roles)

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """These positions of a split, whole images."""
        for part in chunks(index, EVALUATION_BATCH):
            kept = self._kept(split, part)
            yield self._batch(split, kept, [("eval",)], np.zeros(len(kept), np.int64), ("eval",))

    def _view_sets(self) -> list[tuple[str, ...]]:
        """What a visit draws one of: names of views that cover the training split."""
        rows = self._dataset.split(TRAINING)
        found: list[tuple[str, ...]] = [(name,) for name in self._cache.weak_views]
        if self._pairs:
            found = list(self._cache.pairs)
        covering = [names for names in found if all(self._cache.view(name).covers(rows) for name in names)]
        if not covering:
            wanted = "no weak and strong views" if self._pairs else "no view"
            raise TagfillError(
                f"The feature cache {self._cache.folder} has {wanted} of all images of the split "
                f"'{TRAINING}'; add them with 'tagfill features --views eval{',pairs:2' * self._pairs}'."
            )
        return covering

    def _kept(self, split: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those positions whose images could be decoded."""
        if not self._missing:
            return index
        rows = self._dataset.split(split)[index].tolist()
        for row in rows:
            if (image := self._missing.get(row)) is not None:
                self._on_bad(ImageError(image.image, image.problem))
        return index[[row not in self._missing for row in rows]]

    def _batch(
        self,
        split: str,
        index: NDArray[np.int64],
        sets: Sequence[tuple[str, ...]],
        drawn: NDArray[np.int64],
        roles: tuple[str, ...],
    ) -> Batch:
        """A batch in which image i shows the views of sets[drawn[i]], the first of all images first."""
        rows = self._dataset.split(split)[index]
        names = [names[role] for role in range(len(roles)) for names in sets]
        which = np.concatenate([role * len(sets) + drawn for role in range(len(roles))])
        inputs, geometry = self._cache.read(
            names, which, np.tile(rows, len(roles)), maps=self._maps, tokens=self._tokens
        )
        labels = self._dataset.labels(split).rows(index)
        return Batch(torch.from_numpy(index), torch.from_numpy(labels), inputs, geometry, roles)
