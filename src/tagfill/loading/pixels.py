"""Batches of pixels, decoded and cropped in worker processes.

Workers know nothing: each item is asked for as (row of the image table, epoch, index, view), and its crop is drawn
from that address, so that neither their number nor their order changes a pixel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tagfill.annotations import Dataset
from tagfill.contract import Batch
from tagfill.images import EVAL, Geometry, Root, View, look, open_root
from tagfill.loading.source import EVALUATION_BATCH, chunks, make_batch


@dataclass(frozen=True)
class Item:
    """One view of one image: where it lies in the image table, and the address of its draws."""

    row: int
    index: int
    epoch: int = 0
    view: int = 0


class _Views(TorchDataset[tuple[NDArray[np.uint8], Geometry]]):
    def __init__(self, root: Root, names: Sequence[str], view: View, size: tuple[int, int], seed: int) -> None:
        self._root, self._names, self._view, self._size, self._seed = root, names, view, size, seed

    def __getitem__(self, item: Item) -> tuple[NDArray[np.uint8], Geometry]:
        address = {"seed": self._seed, "epoch": item.epoch, "index": item.index, "number": item.view}
        return look(self._root, self._names[item.row], self._view, self._size, **address)


def _join(samples: list[tuple[NDArray[np.uint8], Geometry]]) -> tuple[torch.Tensor, Geometry]:
    pixels = torch.from_numpy(np.stack([pixels for pixels, _ in samples]))
    return pixels.permute(0, 3, 1, 2), Geometry.join([geometry for _, geometry in samples])


def load(
    dataset: Dataset, batches: list[list[Item]], view: View, size: tuple[int, int], *, seed: int, workers: int
) -> Iterator[tuple[torch.Tensor, Geometry]]:
    """The pixels (B×3×H×W uint8, channels last in memory) and the geometry of each batch, in order."""
    views = _Views(open_root(dataset.root), dataset.names(), view, size, seed)
    loader: DataLoader[tuple[NDArray[np.uint8], Geometry]] = DataLoader(
        views,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=_join,
        generator=torch.Generator(),
    )
    yield from loader


class PixelSource:
    """Batches of pixels.

    Args:
        dataset: with its image root.
        size: height and width of the network's input.
        view: of the training images; evaluation always shows the whole image.
        seed: of the run.
        workers: processes that decode; 0 decodes in this one.
        train_split: the split to train on.
    """

    def __init__(
        self,
        dataset: Dataset,
        size: tuple[int, int],
        view: View,
        *,
        seed: int,
        workers: int = 0,
        train_split: str = "train",
    ) -> None:
        self._dataset, self._size, self._view, self._seed, self._workers = dataset, size, view, seed, workers
        self._train_split = train_split

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Batches of the training split in the views of an epoch."""
        return self._batches(self._train_split, batches, self._view, epoch, "train")

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """These positions of a split, whole images."""
        return self._batches(split, chunks(index, EVALUATION_BATCH), EVAL, 0, "eval")

    def _batches(
        self, split: str, batches: Sequence[NDArray[np.int64]], view: View, epoch: int, name: str
    ) -> Iterator[Batch]:
        rows, labels = self._dataset.split(split), self._dataset.labels(split)
        items = [[Item(int(rows[i]), int(i), epoch) for i in batch] for batch in batches]
        loaded = load(self._dataset, items, view, self._size, seed=self._seed, workers=self._workers)
        for index, (pixels, geometry) in zip(batches, loaded, strict=True):
            yield make_batch(index, labels.rows(index), pixels, geometry, name)
