"""Sources of batches: pixels or cached features, optionally with the points, boxes and masks of the images.

Worker processes that decode images have no state: each view is requested as (row of the image table, epoch, index,
view), and its crop is drawn from that address, so neither their number nor their order changes a pixel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tagfill.contract import Batch
from tagfill.data.feature_cache import FeatureCache
from tagfill.data.locations import Locations
from tagfill.dataset import Dataset
from tagfill.errors import ImageError, TagfillError
from tagfill.images import Geometry, Root, View, load_batches, load_view, load_weak_and_strong, open_root
from tagfill.images.batches import Sample, collate
from tagfill.images.remote import read_ahead
from tagfill.labels import LabelMatrix
from tagfill.models.allocator import trim_heap
from tagfill.rng import random_bits

EVALUATION_BATCH = 64
_IMAGES_AT_ONCE, _LABELS_AT_ONCE = 4096, 1 << 22  # whose labels are made dense at a time: at most 4 MB
TRAIN_SPLIT = "train"  # the split that runs learn from


class Source(Protocol):
    """Images or cached features of a dataset, as batches."""

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Yield batches of the training split in the views of an epoch.

        Args:
            batches: positions in the training split, of each batch.
            epoch: number of the epoch, from 1.
        """
        ...

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """Yield batches of these positions of a split, in the evaluation view."""
        ...


def chunks(index: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Split `index` into chunks of `size`; an empty index has no chunks."""
    return np.split(index, np.arange(size, len(index), size)) if len(index) else []


def _raise(error: ImageError) -> None:
    raise error


class PixelSource:
    """Batches of pixels.

    Args:
        dataset: dataset with its image root.
        size: height and width of the network's input.
        view: view of the training images; evaluation always uses the whole image.
        seed: seed of the run.
        workers: processes that decode and augment training images, and threads that decode images for evaluation; 0
            decodes in this process.
        pairs: training batches contain all weak views, then all strong views of their images; a strong view is the weak
            one after Cutout and RandAugment.
        on_bad: called with the error of each image that cannot be decoded and is left out; by default raises it.
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
        """Yield batches of the training split in the views of an epoch."""
        rows, labels = self._dataset.split(TRAIN_SPLIT), self._dataset.labels(TRAIN_SPLIT)
        names = ("weak", "strong") if self._pairs else ("train",)
        requests = [[ViewRequest(int(rows[i]), int(i), epoch) for i in batch] for batch in batches]
        decoded = load_views(
            self._dataset, requests, self._view, self._size, seed=self._seed, workers=self._workers, pairs=self._pairs
        )
        for index, views in zip(batches, decoded, strict=True):
            for error in views.bad:
                self._on_bad(error)
            kept = index[views.kept]
            known = torch.from_numpy(labels.rows(kept))
            yield Batch(torch.from_numpy(kept), known, views.pixels, views.geometry, names)

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """Yield batches of these positions of a split, whole images, decoded as for prediction."""
        root, names = open_root(self._dataset.root), self._dataset.names(self._dataset.split(split))
        labels, parts = self._dataset.labels(split), chunks(index, EVALUATION_BATCH)
        for batch in load_batches(parts, lambda at: (root, names[at]), self._size, workers=self._workers):
            for _, error in batch.bad:
                self._on_bad(error)
            known, pixels = torch.from_numpy(labels.rows(batch.index)), torch.from_numpy(batch.inputs)
            yield Batch(torch.from_numpy(batch.index), known, pixels.permute(0, 3, 1, 2), batch.geometry, ("eval",))


def _ignore(error: ImageError) -> None:
    """Do nothing: the error was reported when the cache was made."""


class FeatureSource:
    """Batches from a feature cache; each visit of a training image draws one of its cached views, or a pair of them.

    Images that could not be decoded when the cache was made are left out.

    Args:
        dataset: dataset whose images are in the cache.
        cache: the features.
        maps: read spatial features; otherwise pooled ones. Of an inner stage there are only spatial ones.
        tokens: read class tokens instead; the cache must contain them, unless it is of an inner stage.
        seed: seed of the run.
        pairs: training batches contain all weak views, then all strong views of their images.
        on_bad: called with the error of each image that is left out; by default ignored.
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
        inner = cache.manifest.inner
        self._dataset, self._cache, self._maps, self._seed = dataset, cache, inner or (maps and not tokens), seed
        self._tokens = tokens and not inner
        if self._tokens:
            cache.require_tokens()
        self._pairs, self._on_bad = pairs, on_bad
        self._missing = cache.missing
        self._splits: dict[str, tuple[NDArray[np.int64], LabelMatrix]] = {}

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Yield batches of the training split in the views of an epoch."""
        sets = self._view_sets()
        roles = ("weak", "strong") if self._pairs else ("train",)
        kept = [self._kept(TRAIN_SPLIT, index) for index in batches]
        visited = np.concatenate([np.empty(0, np.int64), *kept])
        drawn = (random_bits(self._seed, "cached view", epoch, visited) % np.uint64(len(sets))).astype(np.int64)
        yield from self._batches(TRAIN_SPLIT, kept, sets, drawn, roles)

    def locate(self, index: NDArray[np.int64], epoch: int) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
        """Where the features of training images are in an epoch, for `FeatureCache.gather`.

        Args:
            index: N positions in the training split, each with a single view per visit.
            epoch: from 1.

        Returns:
            Names of the views, the number of each image's view, and its position in that view.
        """
        names = [name for (name,) in self._view_sets()]
        drawn = (random_bits(self._seed, "cached view", epoch, index) % np.uint64(len(names))).astype(np.int64)
        return names, drawn, self._cache.locate(names, drawn, self._split(TRAIN_SPLIT)[0][index])

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """Yield batches of these positions of a split, whole images."""
        kept = [self._kept(split, part) for part in chunks(index, EVALUATION_BATCH)]
        return self._batches(split, kept, [("eval",)], np.zeros(sum(map(len, kept)), np.int64), ("eval",))

    def _view_sets(self) -> list[tuple[str, ...]]:
        """Sets of views that cover the training split; each visit draws one set."""
        rows = self._dataset.split(TRAIN_SPLIT)
        sets: list[tuple[str, ...]] = [(name,) for name in self._cache.weak_views]
        if self._pairs:
            sets = list(self._cache.pairs)
        covering = [names for names in sets if all(self._cache.covers(name, rows) for name in names)]
        if not covering:
            wanted = "no weak and strong views" if self._pairs else "no view"
            raise TagfillError(
                f"The feature cache {self._cache.folder} has {wanted} of all images of the split "
                f"'{TRAIN_SPLIT}'; add them with 'tagfill features --views eval{',pairs:2' * self._pairs}'."
            )
        return covering

    def _kept(self, split: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Drop the positions whose images could not be decoded."""
        if not self._missing:
            return index
        rows = self._dataset.split(split)[index].tolist()
        for row in rows:
            if (image := self._missing.get(row)) is not None:
                self._on_bad(ImageError(image.image, image.problem))
        return index[[row not in self._missing for row in rows]]

    def _batches(
        self,
        split: str,
        batches: Sequence[NDArray[np.int64]],
        sets: Sequence[tuple[str, ...]],
        drawn: NDArray[np.int64],
        roles: tuple[str, ...],
    ) -> Iterator[Batch]:
        """Read batches; the first views of all images of a batch come first.

        Where each image lies in its view is looked up for all batches at once, and labels and geometry are read for
        many batches at a time: on pooled features, reading them one by one would take longer than the step itself.

        Args:
            split: the split.
            batches: positions in the split, of each batch.
            sets: sets of views, one view for each role.
            drawn: number of the set of each image, of all batches one after the other.
            roles: names of the views of a batch.
        """
        split_rows, labels = self._split(split)
        names = [names[role] for role in range(len(roles)) for names in sets]
        ends = list(itertools.accumulate(map(len, batches), initial=0))
        order = _view_major(ends, len(roles))
        rows = split_rows[np.concatenate([np.empty(0, np.int64), *batches])]
        which = (np.arange(len(roles))[:, None] * len(sets) + drawn).ravel()[order]
        at = self._cache.locate(names, which, np.tile(rows, len(roles))[order])
        step = max(1, min(_IMAGES_AT_ONCE, _LABELS_AT_ONCE // max(labels.width, 1)))
        for part in _group(batches, step):
            first, last = ends[part.start], ends[part.stop]
            index = np.concatenate([np.empty(0, np.int64), *batches[part]])
            images, known = torch.from_numpy(index), torch.from_numpy(labels.rows(index))
            inside = slice(first * len(roles), last * len(roles))
            geometry = self._cache.geometry(names, which[inside], at[inside])
            for begin, end in itertools.pairwise(ends[part.start : part.stop + 1]):
                here = slice(begin - first, end - first)
                views = slice(begin * len(roles), end * len(roles))
                inputs = self._cache.gather(names, which[views], at[views], maps=self._maps, tokens=self._tokens)
                cut = slice(views.start - inside.start, views.stop - inside.start)
                seen = Geometry(geometry.box[cut], geometry.flip_x[cut], geometry.flip_y[cut], geometry.exact[cut])
                yield Batch(images[here], known[here], inputs, seen, roles)

    def _split(self, name: str) -> tuple[NDArray[np.int64], LabelMatrix]:
        """Rows in the image table and labels of a split, looked up once."""
        if name not in self._splits:
            self._splits[name] = self._dataset.split(name), self._dataset.labels(name)
        return self._splits[name]


def _view_major(ends: Sequence[int], views: int) -> NDArray[np.int64]:
    """The order that puts the views of each batch together, its first views first.

    Args:
        ends: where the batches begin among the images, and where the last one ends.
        views: V; the input is all first views, then all second views, and so on.

    >>> _view_major([0, 2, 3], 2).tolist()
    [0, 1, 3, 4, 2, 5]
    """
    if views == 1:
        return np.arange(ends[-1])
    every = np.arange(views * ends[-1]).reshape(views, -1)
    return np.concatenate([np.empty(0, np.int64), *(every[:, a:b].ravel() for a, b in itertools.pairwise(ends))])


def _group(batches: Sequence[NDArray[np.int64]], most: int) -> Iterator[slice]:
    """Consecutive batches of at most `most` images together, or one larger batch alone.

    >>> [(part.start, part.stop) for part in _group([np.arange(2), np.arange(2), np.arange(9), np.arange(1)], 4)]
    [(0, 2), (2, 3), (3, 4)]
    """
    first = images = 0
    for number, batch in enumerate(batches):
        if number > first and images + len(batch) > most:
            yield slice(first, number)
            first, images = number, 0
        images += len(batch)
    if batches:
        yield slice(first, len(batches))


class SourceWithMarks:
    """A source that adds the points, boxes and masks of training images to their batches.

    Args:
        source: source of the batches.
        locations: locations in the training split.
    """

    def __init__(self, source: Source, locations: Locations) -> None:
        self._source, self._locations = source, locations

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Yield batches of the training split, with marks."""
        return self._add_marks(self._source.train(batches, epoch))

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """Yield batches of these positions of a split; with marks if it is the training split."""
        batches = self._source.evaluate(split, index)
        return self._add_marks(batches) if split == TRAIN_SPLIT else batches

    def _add_marks(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield replace(batch, marks=self._locations.of(batch.index.numpy()))


@dataclass(frozen=True)
class ViewRequest:
    """One view of one image: its row in the image table, and the address of its random draws."""

    row: int
    index: int
    epoch: int = 0
    view: int = 0


@dataclass
class DecodedBatch:
    """The decoded views of one batch, or what a backbone computed of them up to an inner stage.

    Attributes:
        pixels: n×3×H×W uint8, or n×C×H'×W' float32 of an inner stage; channels last in memory.
        geometry: of the n views.
        kept: their positions in the batch; images that cannot be decoded are left out.
        bad: errors of those images.
    """

    pixels: torch.Tensor
    geometry: Geometry
    kept: NDArray[np.int64]
    bad: list[ImageError]


class _ViewDataset(TorchDataset[Sample]):
    def __init__(
        self, root: Root, names: Sequence[str], view: View, size: tuple[int, int], seed: int, pairs: bool
    ) -> None:
        self._root, self._names, self._view, self._size, self._seed = root, names, view, size, seed
        self._pairs = pairs

    def __getitem__(self, request: ViewRequest) -> Sample:
        address = {"seed": self._seed, "epoch": request.epoch, "index": request.index, "number": request.view}
        load = load_weak_and_strong if self._pairs else load_view
        try:
            return load(self._root, self._names[request.row], self._view, self._size, **address)
        except ImageError as error:
            return error

    def collate(self, samples: list[Sample]) -> DecodedBatch:
        """Stack the decoded views of a batch; of pairs, first all weak views, then all strong views."""
        batch = collate(range(len(samples)), samples, self._size)
        pixels, geometry = batch.inputs, batch.geometry
        if self._pairs and len(batch.index):
            pixels = np.concatenate([pixels[:, 0], pixels[:, 1]])
            geometry = geometry.take(np.arange(len(geometry)).reshape(-1, 2).T.ravel())
        bad = [error for _, error in batch.bad]
        return DecodedBatch(torch.from_numpy(pixels).permute(0, 3, 1, 2), geometry, batch.index, bad)


def load_views(
    dataset: Dataset,
    batches: list[list[ViewRequest]],
    view: View,
    size: tuple[int, int],
    *,
    seed: int,
    workers: int,
    pairs: bool = False,
) -> Iterator[DecodedBatch]:
    """Decode the views of each batch, in order; with `pairs`, the weak and the strong version of each view."""
    root, names = open_root(dataset.root), dataset.names()
    views = _ViewDataset(root, names, view, size, seed, pairs)
    ready = read_ahead(batches, lambda batch: [(root, names[request.row]) for request in batch])
    loader: DataLoader[Sample] = DataLoader(
        views,
        batch_sampler=ready,
        num_workers=workers,
        collate_fn=views.collate,
        generator=torch.Generator(),
    )
    if workers:
        trim_heap()
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise TagfillError(
            "A worker process that decodes images was killed, perhaps because memory ran out; use fewer --workers or "
            "smaller batches, and resume."
        ) from None


def load_inner(
    dataset: Dataset, cache: FeatureCache, batches: Sequence[Sequence[ViewRequest]], view: str
) -> Iterator[DecodedBatch]:
    """Read the views of each batch from the cache of an inner stage, instead of decoding images.

    Args:
        dataset: dataset with the images.
        cache: of an inner stage, opened for this dataset.
        batches: rows of the dataset's image table; the crops are those of the cache.
        view: name of the view.
    """
    missing, names = cache.missing, dataset.names()
    for batch in batches:
        rows = np.array([request.row for request in batch], np.int64)
        kept = np.flatnonzero(~np.isin(rows, list(missing)))
        bad = [ImageError(names[row], missing[row].problem) for row in np.delete(rows, kept).tolist()]
        features, geometry = cache.read([view], np.zeros(len(kept), np.int64), rows[kept], maps=True)
        yield DecodedBatch(features, geometry, kept, bad)
