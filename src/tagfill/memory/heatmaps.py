"""Running class heatmaps of each whole image, updated through the views that training happens to see.

    Hᵗ = μ Hᵗ⁻¹ + (1 − μ) Fᵗ    inside the window that the view shows; unchanged outside

H has W×W cells for the full image, W twice the grid of the class maps, in steps of 1/255. It starts at 1 for an
annotated class and 0 for the others. Rounded to the nearest step with μ = 0.8, a cell that falls stops at 2/255 and one
that rises stops at 253/255, even if all further F are 0 or 1, and a cell at 0 stays there until F reaches 0.01; rounded
stochastically, up with the probability of the remainder, it is right in the mean and reaches both ends. That noise
depends on the seed, the image and the epoch only. Classes are the innermost dimension, as in the class maps that a head
makes of cached features.

With many classes an image keeps a few of them: its annotated ones, and those with the highest running scores when
`choose` is called. Before that there are no heatmaps.

Between the whole image and a view, maps are resized bilinearly. That is linear and separable: cutting a window out of a
W×W map, mirroring it and resizing it to G×G is A H Bᵀ with one G×W matrix for each direction, and a whole batch with
different windows is two batched products.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import Geometry
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.memory.base import Flag, Rows, Shard, Store
from tagfill.memory.disk import BackgroundArray
from tagfill.memory.scores import Scores, TopKScores, check_classes_per_image, top_classes
from tagfill.rng import generator

Rounding = Literal["nearest", "stochastic"]

_BLOCK = 256  # images that are initialized at a time
_CELLS = 1 << 18  # cells of heatmaps that are computed at a time
_AHEAD = 2  # batches that are read ahead


class Heatmaps(Store):
    """n×W×W×k heatmaps in steps of 1/255, in memory or in a file.

    Args:
        labels: of the training images.
        shard: the images of this rank.
        momentum: μ, the weight of the past.
        size: W.
        path: keep them in this file with undo journals; None keeps them in memory.
        resume: the file exists; its content will be rolled back to a checkpoint.
        count: k, classes that an image keeps; None keeps all L.
        rounding: to the nearest step, or stochastic.
        seed: of stochastic rounding.

    Attributes:
        chosen: whether it is settled which classes an image keeps.
    """

    values: Tensor | BackgroundArray
    classes: Tensor | None = None
    chosen: bool = True

    def __init__(
        self,
        labels: LabelMatrix,
        shard: Shard,
        *,
        momentum: float,
        size: int,
        path: Path | None = None,
        resume: bool = False,
        count: int | None = None,
        rounding: Rounding = "nearest",
        seed: int = 0,
    ) -> None:
        self._shape = (size, size, labels.width if count is None else count)
        values = Rows(self._shape, torch.uint8, path=path, resume=resume)
        if count is None:
            super().__init__(shard, values=values)
        else:
            check_classes_per_image(labels, count, "heatmaps")
            super().__init__(shard, values=values, classes=Rows((count,), torch.int32, fill=-1), chosen=Flag())
        self.momentum, self.size = momentum, size
        self._labels, self._rounding, self._seed, self._resume = labels, rounding, seed, resume
        self._scratch = ScratchBuffers()

    def _initialize(self) -> None:
        self._prefetcher = Prefetcher(self.disk, self._shard)
        if self.chosen and not self._resume:
            self._fill()

    def choose(self, scores: Scores | TopKScores) -> None:
        """Choose the classes that each image keeps, by its current scores, and start their heatmaps."""
        assert self.classes is not None
        for rows in self._blocks():
            annotated = torch.from_numpy(self._labels.rows(self._shard.index[rows]) == POSITIVE)
            current = scores.read(torch.from_numpy(self._shard.index[rows]))
            self.classes[torch.from_numpy(rows)] = top_classes(current, annotated, self.classes.shape[1]).int()
        self.chosen = True
        self._fill()

    def kept(self, index: Tensor) -> Tensor | None:
        """The classes that these images keep, B×k ascending; None where all are kept."""
        return None if self.classes is None else self.classes[torch.from_numpy(self._shard.rows(index))].long()

    def read(self, index: Tensor, geometry: Geometry, grid: tuple[int, int]) -> Tensor:
        """The part of these images' heatmaps that the views show, B×k×G×G in [0, 1], classes innermost in memory."""
        self.settle(index)
        rows = self._shard.rows(index)
        self._prefetcher.advance(rows)
        shown = torch.empty(len(rows), *grid, self._shape[2])
        for few in self._pieces(len(rows)):
            cut(
                self._steps(rows[few]), geometry.take(few), grid, out=shown[few[0] : few[-1] + 1], scratch=self._scratch
            )
        return shown.div_(255).permute(0, 3, 1, 2)

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """Read the coming batches ahead if the heatmaps are on disk."""
        self._prefetcher.expect(batches)

    def update(self, index: Tensor, geometry: Geometry, probabilities: Tensor, epoch: int = 0) -> None:
        """Move the visible part of these images' heatmaps towards new maps, B×k×G×G."""
        self._write_soon(index, probabilities.permute(0, 2, 3, 1).float(), geometry, epoch)

    def _write(self, index: Tensor, views: Tensor, *rest: Any) -> None:
        geometry, epoch = rest
        rows = self._shard.rows(index)
        values = torch.empty(len(rows), *self._shape, dtype=torch.uint8)
        for few in self._pieces(len(rows)):
            part = slice(few[0], few[-1] + 1)
            seen, visible = paste(views[part], geometry.take(few), self.size, scratch=self._scratch)
            weight = torch.where(visible, self.momentum, 1.0)
            steps = self._steps(rows[few]).mul_(weight).add_(seen.mul_((1 - self.momentum) * 255))
            if self._rounding == "stochastic":
                steps.add_(self._noise(index[part], epoch) * visible).floor_().clamp_(0, 255)
            values[part] = steps.round_()
        self._put(rows, values)

    def _noise(self, index: Tensor, epoch: int) -> Tensor:
        """Uniform numbers in [0, 1) for each cell of these images, drawn class by class."""
        shape = (self._shape[2], self.size, self.size)
        rows = [
            generator(self._seed, "rounding", epoch, image).random(shape, dtype=np.float32) for image in index.tolist()
        ]
        return torch.from_numpy(np.stack(rows) if rows else np.zeros((0, *shape), np.float32)).permute(0, 2, 3, 1)

    def _fill(self) -> None:
        for rows in self._blocks():
            observed = torch.from_numpy(self._labels.rows(self._shard.index[rows]) == POSITIVE)
            if self.classes is not None:
                observed = observed.gather(1, self.classes[torch.from_numpy(rows)].long())
            steps = 255 * observed.to(torch.uint8)[:, None, None, :]
            self._put(rows, steps.expand(-1, self.size, self.size, -1).contiguous())

    def _blocks(self) -> list[NDArray[np.int64]]:
        return _ranges(len(self._shard), _BLOCK)

    def _pieces(self, count: int) -> list[NDArray[np.int64]]:
        """Split a batch so that its numbers stay in the CPU cache and scratch memory is bounded."""
        return _ranges(count, max(1, _CELLS // math.prod(self._shape)))

    def _steps(self, rows: NDArray[np.int64]) -> Tensor:
        """Heatmaps as floats from 0 to 255, valid until the next call."""
        return self._scratch.take("steps", (len(rows), *self._shape)).copy_(self._get(rows))

    def _get(self, rows: NDArray[np.int64]) -> Tensor:
        if isinstance(self.values, BackgroundArray):
            return torch.from_numpy(self.values.read(rows))
        return self.values[torch.from_numpy(rows)]

    def _put(self, rows: NDArray[np.int64], steps: Tensor) -> None:
        if isinstance(self.values, BackgroundArray):
            self.values.write(rows, steps.numpy())
        else:
            self.values[torch.from_numpy(rows)] = steps


def _ranges(count: int, size: int) -> list[NDArray[np.int64]]:
    return [np.arange(start, min(start + size, count)) for start in range(0, count, size)]


class Prefetcher:
    """Reads the rows of coming batches ahead of their turn.

    Args:
        disk: the file; None if the rows are in memory and there is nothing to do.
        shard: the images of this rank.
    """

    def __init__(self, disk: BackgroundArray | None, shard: Shard) -> None:
        self._disk, self._shard = disk, shard
        self._batches: deque[NDArray[np.int64]] = deque()

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """Start reading; `batches` are the images of the coming batches, in order."""
        self._batches = deque(batches) if self._disk is not None else deque()
        for batch in list(self._batches)[:_AHEAD]:
            self._read_ahead(batch)

    def advance(self, rows: NDArray[np.int64]) -> None:
        """Read one more batch ahead, because these rows are being used; images that do not decode may be missing."""
        first = self._shard.index[rows[:1]]
        for passed in range(min(_AHEAD, len(self._batches)) if len(first) else 0):
            if first[0] in self._batches[passed]:
                for _ in range(passed + 1):
                    self._batches.popleft()
                if len(self._batches) >= _AHEAD:
                    self._read_ahead(self._batches[_AHEAD - 1])
                return

    def _read_ahead(self, batch: NDArray[np.int64]) -> None:
        assert self._disk is not None
        self._disk.read_ahead(self._shard.rows(torch.from_numpy(batch)))


class ScratchBuffers:
    """Float32 buffers that are used again at each step; allocating them each time would cost more than the arithmetic.

    Example:
        >>> ScratchBuffers().take("rows", (2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A contiguous tensor with arbitrary content, valid until the same name is taken again."""
        size = math.prod(shape)
        if name not in self._buffers or len(self._buffers[name]) < size:
            self._buffers[name] = torch.empty(size)
        return self._buffers[name][:size].view(shape)


@lru_cache(maxsize=4096)
def _resize(source: int, target: int) -> Tensor:
    """target×source weights of bilinear resizing with half-pixel centers; edges are repeated."""
    at = ((torch.arange(target, dtype=torch.float64) + 0.5) * source / target - 0.5).clamp(min=0)
    left = at.floor().long().clamp(max=source - 1)
    right = (left + 1).clamp(max=source - 1)
    share = at - left
    weights = torch.zeros(target, source, dtype=torch.float64)
    row = torch.arange(target)
    weights.index_put_((row, left), 1 - share, accumulate=True)
    weights.index_put_((row, right), share, accumulate=True)
    return weights


@lru_cache(maxsize=4096)
def _cut(start: int, stop: int, flip: bool, size: int, grid: int) -> Tensor:
    """grid×size: from a map of the whole image to a view of it."""
    matrix = torch.zeros(grid, size)
    matrix[:, start:stop] = _resize(stop - start, grid).float()
    return matrix.flip(0) if flip else matrix


@lru_cache(maxsize=4096)
def _paste(start: int, stop: int, flip: bool, size: int, grid: int) -> Tensor:
    """size×grid: from a view back into the map; rows outside of the window are zero."""
    matrix = torch.zeros(size, grid)
    matrix[start:stop] = _resize(grid, stop - start).float()
    return matrix.flip(1) if flip else matrix


def _matrices(kind: str, geometry: Geometry, size: int, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The matrices of all views, for rows and for columns of the map."""
    make = _cut if kind == "cut" else _paste
    windows = geometry.windows(size).tolist()
    down = [make(w[1], w[3], bool(f), size, grid[0]) for w, f in zip(windows, geometry.flip_y, strict=True)]
    across = [make(w[0], w[2], bool(f), size, grid[1]) for w, f in zip(windows, geometry.flip_x, strict=True)]
    return torch.stack(down), torch.stack(across)


def cut(
    maps: Tensor,
    geometry: Geometry,
    grid: tuple[int, int],
    *,
    out: Tensor | None = None,
    scratch: ScratchBuffers | None = None,
) -> Tensor:
    """Cut and resize maps of whole images to what each view shows: B×W×W×L to B×G×G×L.

    Args:
        maps: B×W×W×L float32.
        geometry: of the views.
        grid: rows and columns of the result.
        out: where the result is written, if given.
        scratch: for intermediate results.
    """
    down, across = _matrices("cut", geometry, maps.shape[1], grid)
    return torch.matmul(across[:, None], _rows(down, maps, scratch or ScratchBuffers()), out=out)


def paste(
    views: Tensor, geometry: Geometry, size: int, *, scratch: ScratchBuffers | None = None
) -> tuple[Tensor, Tensor]:
    """Resize maps of views back into the frame of their images; also return a B×W×W×1 mask of the part they show.

    Args:
        views: B×G×G×L float32.
        geometry: of the views.
        size: W.
        scratch: holds the result, B×W×W×L, zero outside of the window, and overwrites it at the next use.
    """
    scratch = scratch or ScratchBuffers()
    down, across = _matrices("paste", geometry, size, (views.shape[1], views.shape[2]))
    maps = scratch.take("pasted", (len(views), size, size, views.shape[3]))
    torch.matmul(across[:, None], _rows(down, views, scratch), out=maps)
    visible = (down.sum(-1) > 0)[:, :, None, None] & (across.sum(-1) > 0)[:, None, :, None]
    return maps, visible


def _rows(down: Tensor, maps: Tensor, scratch: ScratchBuffers) -> Tensor:
    """Resize the rows of maps: B×H×W×L to B×H'×W×L."""
    count, height, width, classes = maps.shape
    resized = scratch.take("rows", (count, down.shape[1], width * classes))
    torch.bmm(down, maps.reshape(count, height, width * classes), out=resized)
    return resized.view(count, -1, width, classes)
