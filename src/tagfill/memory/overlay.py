"""Labels that a method changed for good, on top of those that people gave.

An `annotations.Overlay` of this rank's images: 9 bytes a change, whatever the number of images and classes. New changes
are collected in a small overlay of their own and merged into the large one now and then, so that a step costs no more
when millions of labels were changed before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import LabelMatrix, Overlay
from tagfill.memory.shard import SavedPart, Shard

_MERGE_AT = 4096  # recent changes, or a sixteenth of all, whichever is more


class ChangedLabels:
    """Changed labels of this rank's images; it starts without any."""

    def __init__(self, labels: LabelMatrix, shard: Shard) -> None:
        self._labels = labels
        self._shard = shard
        self._settled, self._recent = Overlay(labels), Overlay(labels)

    def __len__(self) -> int:
        """The number of changes."""
        self._settle()
        return len(self._settled)

    @staticmethod
    def bytes(changes: float) -> int:
        """What so many changes take."""
        return ceil(9 * changes)

    def read(self, index: Tensor, labels: Tensor) -> Tensor:
        """The labels of these images with all changes so far.

        Args:
            index: B, the images.
            labels: B×L, what people said of them.

        Returns:
            B×L, a copy.
        """
        changed, images = labels.clone(), self._checked(index)
        for overlay in (self._settled, self._recent):
            row, label, value = overlay.entries(images)
            changed[torch.from_numpy(row), torch.from_numpy(label)] = torch.from_numpy(value).to(labels)
        return changed

    def set(self, index: Tensor, entries: Tensor, value: int) -> None:
        """Show `value` for some labels of these images from now on.

        Args:
            index: B, the images.
            entries: B×L bool, the labels to change.
            value: 1 present, 0 absent, -1 unknown.
        """
        images = self._checked(index)
        row, label = np.nonzero(entries.cpu().numpy())
        self._recent.set(images[row], label, value)
        if len(self._recent) > max(_MERGE_AT, len(self._settled) // 16):
            self._settle()

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        keys = np.concatenate([part.tensors["keys"].numpy() for part in parts])
        values = np.concatenate([part.tensors["values"].numpy() for part in parts])
        mine = np.isin(keys // self._labels.width, self._shard.index)
        self._settled, self._recent = Overlay(self._labels, keys[mine], values[mine]), Overlay(self._labels)

    def state_dict(self) -> dict[str, Tensor]:
        """All changes: image·L + class of each, ascending, and its value."""
        self._settle()
        return {"keys": torch.from_numpy(self._settled.keys), "values": torch.from_numpy(self._settled.values)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved changes."""
        keys, values = state["keys"].numpy().copy(), state["values"].numpy().copy()
        self._settled, self._recent = Overlay(self._labels, keys, values), Overlay(self._labels)

    def _settle(self) -> None:
        self._settled.set(*self._recent.changes())
        self._recent.clear()

    def _checked(self, index: Tensor) -> NDArray[np.int64]:
        """The images, or an error if another process keeps the state of one."""
        return self._shard.index[self._shard.rows(index)]
