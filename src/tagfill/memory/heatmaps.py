"""Running class heatmaps of each whole image, updated through the views that training happens to see.

    Hᵗ = μ Hᵗ⁻¹ + (1 − μ) Fᵗ    inside the window that the view shows; untouched outside

H has W×W cells for the full image, W twice the grid of the class maps, in steps of 1/255. It starts at 1 for
an annotated class and 0 for the others. Rounded to the nearest step with μ = 0.8 it can neither fall below 2/255
nor rise above 253/255.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import POSITIVE, Geometry, LabelMatrix
from tagfill.memory.journal import JournaledArray
from tagfill.memory.resampling import cut, paste
from tagfill.memory.shard import SavedPart, Shard

_BLOCK = 256


class Heatmaps:
    """n×L×W×W heatmaps in steps of 1/255, in memory or in a file.

    Args:
        labels: of the training images.
        shard: the images of this rank.
        momentum: μ, the weight of the past.
        size: W.
        path: keep them in this file with undo journals; None keeps them in memory.
        resume: the file exists; its content is restored by rolling it back to a checkpoint.
    """

    def __init__(
        self, labels: LabelMatrix, shard: Shard, *, momentum: float, size: int, path: Path | None, resume: bool = False
    ) -> None:
        self.momentum = momentum
        self.size = size
        self._shard = shard
        self._shape = (len(shard), labels.width, size, size)
        self.disk = None if path is None else JournaledArray(path, self._shape, create=not resume)
        self._values = torch.zeros(self._shape if path is None else (0,), dtype=torch.uint8)
        if not resume:
            self._fill(labels)

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard, size: int) -> int:
        """What the heatmaps of a shard take, in memory or on disk."""
        return len(shard) * labels.width * size * size

    def read(self, index: Tensor, geometry: Geometry, grid: tuple[int, int]) -> Tensor:
        """What these views show of their images' heatmaps, B×L×G×G in [0, 1]."""
        return cut(self._get(self._shard.rows(index)), geometry, grid)

    def update(self, index: Tensor, geometry: Geometry, probabilities: Tensor) -> None:
        """Move the visible part of these images' heatmaps towards new maps, B×L×G×G."""
        rows = self._shard.rows(index)
        past = self._get(rows)
        seen, visible = paste(probabilities.float().cpu(), geometry, self.size)
        self._put(rows, torch.where(visible, self.momentum * past + (1 - self.momentum) * seen, past))

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept, in memory or in files."""
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
                self._put(rows, torch.from_numpy(np.asarray(stored[chosen])).float() / 255)

    def state_dict(self) -> dict[str, Tensor]:
        """The heatmaps if they are in memory; those on disk stay there."""
        return {} if self.disk is not None else {"values": self._values}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved heatmaps."""
        if self.disk is None:
            self._values.copy_(state["values"])

    def _fill(self, labels: LabelMatrix) -> None:
        for start in range(0, len(self._shard), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(self._shard)))
            observed = torch.from_numpy(labels.rows(self._shard.index[rows]) == POSITIVE)
            self._put(rows, observed[:, :, None, None].expand(-1, -1, self.size, self.size).float())

    def _get(self, rows: NDArray[np.int64]) -> Tensor:
        stored = self._values[torch.from_numpy(rows)] if self.disk is None else torch.from_numpy(self.disk.read(rows))
        return stored.float() / 255

    def _put(self, rows: NDArray[np.int64], maps: Tensor) -> None:
        steps = (maps * 255).round().to(torch.uint8)
        if self.disk is None:
            self._values[torch.from_numpy(rows)] = steps
        else:
            self.disk.write(rows, steps.numpy())
