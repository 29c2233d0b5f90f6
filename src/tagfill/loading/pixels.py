"""Batches of pixels, decoded and cropped in worker processes.

Workers know nothing: each item is asked for as (row of the image table, epoch, index, view), and its crop is drawn
from that address, so that neither their number nor their order changes a pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tagfill.annotations import Dataset
from tagfill.contract import Batch
from tagfill.errors import ImageError, TagfillError
from tagfill.images import EVAL, Geometry, Root, View, look, look_twice, open_root
from tagfill.loading.source import EVALUATION_BATCH, TRAINING, chunks
from tagfill.models.heap import release_freed_memory


@dataclass(frozen=True)
class Item:
    """One view of one image: where it lies in the image table, and the address of its draws."""

    row: int
    index: int
    epoch: int = 0
    view: int = 0


Sample = tuple[NDArray[np.uint8], Geometry] | ImageError


@dataclass
class Loaded:
    """Views that belong to one batch.

    Attributes:
        pixels: n×3×H×W uint8, channels last in memory.
        geometry: of the n views.
        kept: which items of the batch they are; bad images are missing.
        bad: what was wrong with those.
    """

    pixels: torch.Tensor
    geometry: Geometry
    kept: NDArray[np.int64]
    bad: list[ImageError]


class _Views(TorchDataset[Sample]):
    def __init__(
        self, root: Root, names: Sequence[str], view: View, size: tuple[int, int], seed: int, pairs: bool
    ) -> None:
        self._root, self._names, self._view, self._size, self._seed = root, names, view, size, seed
        self._pairs = pairs

    def __getitem__(self, item: Item) -> Sample:
        address = {"seed": self._seed, "epoch": item.epoch, "index": item.index, "number": item.view}
        glance = look_twice if self._pairs else look
        try:
            return glance(self._root, self._names[item.row], self._view, self._size, **address)
        except ImageError as error:
            return error

    def join(self, samples: list[Sample]) -> Loaded:
        """The good views of a batch as one array; of pairs, first all weak ones, then all strong ones."""
        good = [sample for sample in samples if not isinstance(sample, ImageError)]
        bad = [sample for sample in samples if isinstance(sample, ImageError)]
        kept = np.array([at for at, sample in enumerate(samples) if not isinstance(sample, ImageError)], dtype=np.int64)
        pixels = np.stack([pixels for pixels, _ in good]) if good else np.empty((0, *self._size, 3), np.uint8)
        geometry = Geometry.join([Geometry.whole(0), *(geometry for _, geometry in good)])
        if self._pairs and good:
            pixels = np.concatenate([pixels[:, 0], pixels[:, 1]])
            geometry = geometry.take(np.arange(2 * len(good)).reshape(-1, 2).T.ravel())
        return Loaded(torch.from_numpy(pixels).permute(0, 3, 1, 2), geometry, kept, bad)


def load(
    dataset: Dataset,
    batches: list[list[Item]],
    view: View,
    size: tuple[int, int],
    *,
    seed: int,
    workers: int,
    pairs: bool = False,
) -> Iterator[Loaded]:
    """The views of each batch, in order; with `pairs`, each view as it is and distorted."""
    views = _Views(open_root(dataset.root), dataset.names(), view, size, seed, pairs)
    loader: DataLoader[Sample] = DataLoader(
        views,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=views.join,
        generator=torch.Generator(),
    )
    if workers:
        release_freed_memory()
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise TagfillError(
            "A process that decodes images was killed, perhaps because memory ran out; use fewer --workers or smaller "
            "batches, and resume."
        ) from None


def _raise(error: ImageError) -> None:
    raise error


class PixelSource:
    """Batches of pixels.

    Args:
        dataset: with its image root.
        size: height and width of the network's input.
        view: of the training images; evaluation always shows the whole image.
        seed: of the run.
        workers: processes that decode; 0 decodes in this one.
        pairs: training batches hold a weak and a strong view of each image, one view after the other; the strong one is
            the weak one after Cutout and RandAugment.
        on_bad: told about each image that cannot be decoded and is left out of its batch; by default it is raised.
    """

    def __init__(
        self,
        dataset: Dataset,
        size: tuple[int, int],
        view: View,
        *,
        seed: int,
        workers: int = 0,
        pairs: bool = False,
        on_bad: Callable[[ImageError], None] = _raise,
    ) -> None:
        self._dataset, self._size, self._view, self._seed, self._workers = dataset, size, view, seed, workers
        self._pairs, self._on_bad = pairs, on_bad

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Batches of the training split in the views of an epoch."""
        names = ("weak", "strong") if self._pairs else ("train",)
        return self._batches(TRAINING, batches, self._view, epoch, names)

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """These positions of a split, whole images."""
        return self._batches(split, chunks(index, EVALUATION_BATCH), EVAL, 0, ("eval",))

    def _batches(
        self, split: str, batches: Sequence[NDArray[np.int64]], view: View, epoch: int, names: tuple[str, ...]
    ) -> Iterator[Batch]:
        rows, labels = self._dataset.split(split), self._dataset.labels(split)
        items = [[Item(int(rows[i]), int(i), epoch) for i in batch] for batch in batches]
        loaded = load(
            self._dataset, items, view, self._size, seed=self._seed, workers=self._workers, pairs=len(names) > 1
        )
        for index, views in zip(batches, loaded, strict=True):
            for error in views.bad:
                self._on_bad(error)
            kept = index[views.kept]
            known = torch.from_numpy(labels.rows(kept))
            yield Batch(torch.from_numpy(kept), known, views.pixels, views.geometry, names)
