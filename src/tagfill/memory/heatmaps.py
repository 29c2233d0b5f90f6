"""Which batches come next, so that their rows are brought in from disk before their turn.

Bilinear resizing between a map of the whole image and a view of it, as small matrices.

Resizing is linear and separable, so cutting a window out of a W×W map, mirroring it and resizing it to G×G is
A H Bᵀ with one G×W matrix for each direction; a whole batch with different windows is then two products. Classes lie
innermost, so that both are products of matrices a row of which holds all classes.

Running class heatmaps of each whole image, updated through the views that training happens to see.

    Hᵗ = μ Hᵗ⁻¹ + (1 − μ) Fᵗ    inside the window that the view shows; untouched outside

H has W×W cells for the full image, W twice the grid of the class maps, in steps of 1/255. It starts at 1 for
an annotated class and 0 for the others. Rounded to the nearest step with μ = 0.8 it can neither fall below 2/255
nor rise above 253/255; rounded at random, up with the probability of what is cut off, it is right in the mean and
reaches both ends. That noise depends on the seed, the image and the epoch alone.

Classes lie innermost, as they do in the class maps that a head makes of cached features.

With many classes an image keeps a few of them: its annotated ones, and those of the highest running scores at the
moment when `choose` is called. Before that moment there are no heatmaps.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import Geometry
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.memory.base import SavedPart, ScratchBuffers, Shard
from tagfill.memory.disk import BackgroundArray, JournaledArray
from tagfill.memory.tables import Scores, TopKScores, check_room, highest
from tagfill.rng import generator

_AHEAD = 2  # batches


class Prefetcher:
    """Reads the rows of coming batches ahead.

    Args:
        disk: where they are; None if they are in memory, and nothing is to be done.
        shard: the images of this rank.
    """

    def __init__(self, disk: BackgroundArray | None, shard: Shard) -> None:
        self._disk, self._shard = disk, shard
        self._batches: deque[NDArray[np.int64]] = deque()

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """The images of the coming batches, in their order."""
        self._batches = deque(batches) if self._disk is not None else deque()
        for batch in list(self._batches)[:_AHEAD]:
            self._read_ahead(batch)

    def pass_by(self, rows: NDArray[np.int64]) -> None:
        """A batch is being read: bring in the one that comes a few after it; bad images may have thinned it out."""
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


@lru_cache(maxsize=4096)
def _resize(source: int, target: int) -> Tensor:
    """target×source weights of bilinear resizing with half-pixel centres, edges held."""
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
    """grid×size: from a map of the whole image to what a view shows of it."""
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
    room: ScratchBuffers | None = None,
) -> Tensor:
    """What each view shows of its image's maps: B×W×W×L to B×G×G×L.

    Args:
        maps: B×W×W×L float32.
        geometry: of the views.
        grid: rows and columns of the result.
        out: where it is written to, if not to new memory.
        room: for what is computed in between.
    """
    down, across = _matrices("cut", geometry, maps.shape[1], grid)
    return torch.matmul(across[:, None], _rows(down, maps, room or ScratchBuffers()), out=out)


def paste(views: Tensor, geometry: Geometry, size: int, *, room: ScratchBuffers | None = None) -> tuple[Tensor, Tensor]:
    """The views' maps in the frame of their images, and a B×W×W×1 mask of the part that they show.

    Args:
        views: B×G×G×L float32.
        geometry: of the views.
        size: W.
        room: for the result, B×W×W×L, which is overwritten when it is used again; zero outside of the window.
    """
    room = room or ScratchBuffers()
    down, across = _matrices("paste", geometry, size, (views.shape[1], views.shape[2]))
    maps = room.take("pasted", (len(views), size, size, views.shape[3]))
    torch.matmul(across[:, None], _rows(down, views, room), out=maps)
    visible = (down.sum(-1) > 0)[:, :, None, None] & (across.sum(-1) > 0)[:, None, :, None]
    return maps, visible


def _rows(down: Tensor, maps: Tensor, room: ScratchBuffers) -> Tensor:
    """Maps with other rows: B×H×W×L to B×H'×W×L."""
    count, height, width, classes = maps.shape
    resized = room.take("rows", (count, down.shape[1], width * classes))
    torch.bmm(down, maps.reshape(count, height, width * classes), out=resized)
    return resized.view(count, -1, width, classes)


Rounding = Literal["nearest", "stochastic"]

_BLOCK = 256
_PIECE = 1 << 18  # cells of heatmaps that are computed with at a time


class Heatmaps:
    """n×W×W×k heatmaps in steps of 1/255, in memory or in a file.

    Args:
        labels: of the training images.
        shard: the images of this rank.
        momentum: μ, the weight of the past.
        size: W.
        path: keep them in this file with undo journals; None keeps them in memory.
        resume: the file exists; its content is restored by rolling it back to a checkpoint.
        count: k, classes that an image keeps; None keeps all L.
        rounding: to the nearest step, or at random.
        seed: of what is random.

    Attributes:
        chosen: whether it is settled which classes an image keeps.
    """

    def __init__(
        self,
        labels: LabelMatrix,
        shard: Shard,
        *,
        momentum: float,
        size: int,
        path: Path | None,
        resume: bool = False,
        count: int | None = None,
        rounding: Rounding = "nearest",
        seed: int = 0,
    ) -> None:
        if count is not None:
            check_room(labels, count, "heatmaps")
        self.momentum = momentum
        self.size = size
        self.chosen = count is None
        self._labels, self._shard = labels, shard
        self._rounding, self._seed = rounding, seed
        self._shape = (len(shard), size, size, labels.width if count is None else count)
        self._classes = None if count is None else torch.full((len(shard), count), -1, dtype=torch.int32)
        self.disk = None if path is None else BackgroundArray(JournaledArray(path, self._shape, create=not resume))
        self._room = ScratchBuffers()
        self._coming = Prefetcher(self.disk, shard)
        self._values = torch.zeros(self._shape if path is None else (0,), dtype=torch.uint8)
        if not resume and count is None:
            self._fill()

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard, size: int, count: int | None = None) -> int:
        """What the heatmaps of a shard take, in memory or on disk, and the list of kept classes."""
        maps = len(shard) * (labels.width if count is None else count) * size * size
        return maps if count is None else maps + 4 * len(shard) * count

    def choose(self, scores: Scores | TopKScores) -> None:
        """Settle which classes each image keeps, by its scores as of now, and begin their heatmaps."""
        assert self._classes is not None
        for rows in self._blocks():
            annotated = torch.from_numpy(self._labels.rows(self._shard.index[rows]) == POSITIVE)
            current = scores.read(torch.from_numpy(self._shard.index[rows]))
            self._classes[torch.from_numpy(rows)] = highest(current, annotated, self._classes.shape[1]).int()
        self.chosen = True
        self._fill()

    def kept(self, index: Tensor) -> Tensor | None:
        """The classes that these images keep, B×k ascending; None where all are kept."""
        return None if self._classes is None else self._classes[torch.from_numpy(self._shard.rows(index))].long()

    def read(self, index: Tensor, geometry: Geometry, grid: tuple[int, int]) -> Tensor:
        """What these views show of their images' heatmaps, B×k×G×G in [0, 1], classes last in memory."""
        rows = self._shard.rows(index)
        self._coming.pass_by(rows)
        shown = torch.empty(len(rows), *grid, self._shape[3])
        for few in self._pieces(len(rows)):
            cut(self._steps(rows[few]), geometry.take(few), grid, out=shown[few[0] : few[-1] + 1], room=self._room)
        return shown.div_(255).permute(0, 3, 1, 2)

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """The images of the coming batches, in their order, which are read ahead if they are on disk."""
        self._coming.expect(batches)

    def update(self, index: Tensor, geometry: Geometry, probabilities: Tensor, epoch: int = 0) -> None:
        """Move the visible part of these images' heatmaps towards new maps, B×k×G×G."""
        rows = self._shard.rows(index)
        views = probabilities.permute(0, 2, 3, 1).float().cpu()
        values = torch.empty(len(rows), *self._shape[1:], dtype=torch.uint8)
        for few in self._pieces(len(rows)):
            part = slice(few[0], few[-1] + 1)
            seen, visible = paste(views[part], geometry.take(few), self.size, room=self._room)
            weight = torch.where(visible, self.momentum, 1.0)
            steps = self._steps(rows[few]).mul_(weight).add_(seen.mul_((1 - self.momentum) * 255))
            if self._rounding == "stochastic":
                steps.add_(self._noise(index[part], epoch) * visible).floor_().clamp_(0, 255)
            values[part] = steps.round_()
        self._put(rows, values)

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept, in memory or in files."""
        if self._classes is not None:
            self._classes = self._shard.collect(parts, "classes")
            self.chosen = bool(parts[0].tensors["chosen"])
        for part in parts:
            stored: NDArray[np.uint8]
            if "heatmaps" in part.files:
                shape = (len(part.shard), *self._shape[1:])
                stored = np.memmap(part.files["heatmaps"], dtype=np.uint8, mode="r", shape=shape)
            else:
                stored = part.tensors["values"].numpy()
            theirs = np.flatnonzero(np.isin(part.shard.index, self._shard.index))
            for start in range(0, len(theirs), _BLOCK):
                chosen = theirs[start : start + _BLOCK]
                rows = np.searchsorted(self._shard.index, part.shard.index[chosen])
                self._put(rows, torch.from_numpy(np.asarray(stored[chosen])))

    def state_dict(self) -> dict[str, Tensor]:
        """The heatmaps if they are in memory, for those on disk stay there; and which classes are kept."""
        state = {} if self.disk is not None else {"values": self._values}
        if self._classes is not None:
            state |= {"classes": self._classes, "chosen": torch.tensor(self.chosen)}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved heatmaps."""
        if self.disk is None:
            self._values.copy_(state["values"])
        if self._classes is not None:
            self._classes.copy_(state["classes"])
            self.chosen = bool(state["chosen"])

    def _noise(self, index: Tensor, epoch: int) -> Tensor:
        """Numbers in [0, 1) for each cell of these images, drawn class by class."""
        shape = (self._shape[3], self.size, self.size)
        rows = [
            generator(self._seed, "rounding", epoch, image).random(shape, dtype=np.float32) for image in index.tolist()
        ]
        return torch.from_numpy(np.stack(rows) if rows else np.zeros((0, *shape), np.float32)).permute(0, 2, 3, 1)

    def _fill(self) -> None:
        for rows in self._blocks():
            observed = torch.from_numpy(self._labels.rows(self._shard.index[rows]) == POSITIVE)
            if self._classes is not None:
                observed = observed.gather(1, self._classes[torch.from_numpy(rows)].long())
            steps = 255 * observed.to(torch.uint8)[:, None, None, :]
            self._put(rows, steps.expand(-1, self.size, self.size, -1).contiguous())

    def _blocks(self) -> list[NDArray[np.int64]]:
        return _ranges(len(self._shard), _BLOCK)

    def _pieces(self, count: int) -> list[NDArray[np.int64]]:
        """A batch in parts whose numbers stay in the cache, and whose room is bounded."""
        return _ranges(count, max(1, _PIECE // math.prod(self._shape[1:])))

    def _steps(self, rows: NDArray[np.int64]) -> Tensor:
        """Heatmaps as floats from 0 to 255, until they are asked for again."""
        return self._room.take("steps", (len(rows), *self._shape[1:])).copy_(self._get(rows))

    def _get(self, rows: NDArray[np.int64]) -> Tensor:
        if self.disk is not None:
            return torch.from_numpy(self.disk.read(rows))
        return self._values[torch.from_numpy(rows)]

    def _put(self, rows: NDArray[np.int64], steps: Tensor) -> None:
        if self.disk is None:
            self._values[torch.from_numpy(rows)] = steps
        else:
            self.disk.write(rows, steps.numpy())


def _ranges(count: int, size: int) -> list[NDArray[np.int64]]:
    return [np.arange(start, min(start + size, count)) for start in range(0, count, size)]
