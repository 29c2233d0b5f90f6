"""Labels that a method decides on: dense pseudo-labels, sparse ones with a place, and changed labels.

    PseudoLabels   a soft or hard label for most unknown entries     n×L half precision, -1 where there is none
    FoundLabels    pseudo-labels with the map cell they come from    11 bytes per label, at most `limit` per image
    ChangedLabels  annotated or unknown labels that were flipped     9 bytes per change

A method that pseudo-labels in the dense table ends with a label for most entries (nine tenths of the unknown ones in
EM+APL); a list of keys and values would then be five times as large.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.labels import UNKNOWN, LabelMatrix, Overlay
from tagfill.memory.base import Flag, Rows, Shard, Sparse, Store, find_entries

_NONE = -1.0
_MERGE_AT = 4096  # recent changes, or a sixteenth of all, whichever is more


class PseudoLabels(Store):
    """Soft or hard labels, one row per image of this rank.

    Attributes:
        values: n×L float16, -1 where there is no label.
    """

    values: Tensor

    def __init__(self, labels: LabelMatrix, shard: Shard) -> None:
        super().__init__(shard, values=Rows((labels.width,), torch.float16, fill=_NONE))

    @property
    def given(self) -> Tensor:
        """Which entries have a label, n×L bool, in the order of the shard."""
        return self.values >= 0

    def clear(self) -> None:
        """Remove all labels."""
        self.values.fill_(_NONE)

    def assign(self, mask: Tensor, values: Tensor | float) -> None:
        """Label the entries of an n×L mask over this rank's images, each with its value, or all with one."""
        if isinstance(values, Tensor):
            self.values[mask] = values[mask].to(self.values.dtype)
        else:
            self.values[mask] = values

    def read(self, index: Tensor) -> Tensor:
        """The labels of these images, B×L float32; -1 where there is none."""
        return self.values[torch.from_numpy(self._shard.rows(index))].float()


class FoundLabels(Store):
    """Pseudo-labels of this rank's images, each with the map cell that it was found in.

    Args:
        shard: the images of this rank.
        width: L.
        limit: labels per image, at most.

    Attributes:
        keys: image·L + class of each label, ascending.
        values: 1 present, 0 absent.
        cells: cells of the class maps, counted row by row.
        made: whether a search was made, also if it found nothing.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.int8]
    cells: NDArray[np.int16]
    made: bool

    def __init__(self, shard: Shard, width: int, *, limit: int) -> None:
        dtypes = {"keys": torch.int64, "values": torch.int8, "cells": torch.int16}
        most = len(shard) * min(limit, width)
        lists = {name: Sparse(dtype=dtype, width=width, most=most) for name, dtype in dtypes.items()}
        super().__init__(shard, **lists, made=Flag())
        self._width = width

    def __len__(self) -> int:
        return len(self.keys)

    def replace(
        self,
        image: NDArray[np.int64],
        label: NDArray[np.int64],
        value: NDArray[np.int8],
        cell: NDArray[np.int16],
    ) -> None:
        """Hold exactly those of these labels that are about this rank's images."""
        mine = np.isin(image, self._shard.index)
        keys = (image * self._width + label)[mine]
        order = np.argsort(keys, kind="stable")
        self.keys, self.values, self.cells = keys[order], value[mine][order], cell[mine][order]
        self.made = True

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The labels of these images, B×L int8 with -1 for none, and the cells that they were found in, B×L."""
        images = self._shard.index[self._shard.rows(index)]
        entry, row, label = find_entries(self.keys, images, self._width)
        labels = np.full((len(images), self._width), UNKNOWN, dtype=np.int8)
        cells = np.zeros((len(images), self._width), dtype=np.int16)
        labels[row, label], cells[row, label] = self.values[entry], self.cells[entry]
        return torch.from_numpy(labels), torch.from_numpy(cells)


class ChangedLabels(Store):
    """Labels of this rank's images that were changed for good, as an `Overlay`; there are none at first.

    New changes go to a small overlay and are merged into the large one now and then, so that a step stays fast after
    millions of changes.

    Args:
        labels: of the training images.
        shard: the images of this rank.
        changes: number to plan for.

    Attributes:
        keys: image·L + class of each merged change, ascending.
        values: 1 present, 0 absent, -1 unknown.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.int8]

    def __init__(self, labels: LabelMatrix, shard: Shard, *, changes: float = 0) -> None:
        super().__init__(
            shard,
            keys=Sparse(dtype=torch.int64, width=labels.width, most=changes),
            values=Sparse(dtype=torch.int8, width=labels.width, most=changes),
        )
        self._labels = labels
        self._merged, self._recent = Overlay(labels), Overlay(labels)

    def __len__(self) -> int:
        """The number of changes."""
        self.settle()
        self._merge()
        return len(self._merged)

    def read(self, index: Tensor, labels: Tensor) -> Tensor:
        """The labels of these images with all changes so far.

        Args:
            index: B, the images.
            labels: B×L, their annotated labels, on the host.

        Returns:
            B×L, a copy.
        """
        self.settle(index)
        changed, images = labels.clone(), self._images(index)
        for overlay in (self._merged, self._recent):
            row, label, value = overlay.entries(images)
            changed[torch.from_numpy(row), torch.from_numpy(label)] = torch.from_numpy(value).to(labels)
        return changed

    def set(self, index: Tensor, entries: Tensor, value: int) -> None:
        """Change some labels of these images.

        Args:
            index: B, the images.
            entries: B×L bool, the labels to change.
            value: 1 present, 0 absent, -1 unknown.
        """
        self._write_soon(index, entries, value)

    def _write(self, index: Tensor, values: Tensor, *rest: int) -> None:
        images, (value,) = self._images(index), rest
        row, label = np.nonzero(values.numpy())
        self._recent.set(images[row], label, value)
        if len(self._recent) > max(_MERGE_AT, len(self._merged) // 16):
            self._merge()

    def _merge(self) -> None:
        self._merged.set(*self._recent.changes())
        self._recent.clear()
        self.keys, self.values = self._merged.keys, self._merged.values

    def _before_save(self) -> None:
        self._merge()

    def _after_load(self) -> None:
        self._merged, self._recent = Overlay(self._labels, self.keys, self.values), Overlay(self._labels)
        self.keys, self.values = self._merged.keys, self._merged.values

    def _images(self, index: Tensor) -> NDArray[np.int64]:
        """The images, or an error if another process keeps the state of one."""
        return self._shard.index[self._shard.rows(index)]
