"""Sparse tables as ascending keys, row·L + class: which of them belong to some rows.

A sparse set of (image, class) entries, for what a method decides about a few labels of many.

Labels that were found by looking: a sparse list of pseudo-labels, with the cell that each was found in.

11 bytes a label, and at most `limit` labels an image, whatever the number of classes.

Labels that a method changed for good, on top of those that people gave.

An `annotations.Overlay` of this rank's images: 9 bytes a change, whatever the number of images and classes. New changes
are collected in a small overlay of their own and merged into the large one now and then, so that a step costs no more
when millions of labels were changed before it.

Labels that a method gave by itself: a probability for each entry that it labelled, nothing for the others.

Kept as an n×L table in half precision, with -1 for nothing. A method that labels by itself ends with a label for most
entries (nine tenths of the unknown ones in EM+APL), and a list of keys and values would then be five times as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.labels import POSITIVE, UNKNOWN, LabelMatrix, Overlay
from tagfill.memory.base import SavedPart, Shard


def entries_of(
    keys: NDArray[np.int64], rows: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The entries of some rows.

    Args:
        keys: row·L + class of each entry, ascending.
        rows: B, which to look up.
        width: L.

    Returns:
        For each entry of these rows: its position in `keys`, which of `rows` it belongs to, and its class.

    Example:
        >>> [part.tolist() for part in entries_of(np.array([1, 4, 5]), np.array([2, 0]), 2)]
        [[1, 2, 0], [0, 0, 1], [0, 1, 1]]
    """
    first = np.searchsorted(keys, rows * width)
    count = np.searchsorted(keys, (rows + 1) * width) - first
    entry = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return entry, np.repeat(np.arange(len(rows)), count), keys[entry] % width


class Entries:
    """Entries of this rank's images, kept as sorted keys row·L + class."""

    def __init__(self, shard: Shard, width: int) -> None:
        self._shard = shard
        self._width = width
        self.keys = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard, most: int | None) -> int:
        """What at most `most` entries take; by default, every entry of the shard."""
        every = len(shard) * labels.width
        return 8 * (every if most is None else min(most, every))

    def replace(self, mask: Tensor) -> None:
        """Hold exactly the entries of an n×L mask over this rank's images, in the order of its shard."""
        self.keys = np.flatnonzero(mask.cpu().numpy())

    def replace_by_columns(self, masks: Iterable[tuple[int, Tensor]]) -> None:
        """The same for a mask that comes in parts: the first class of each, and n×c entries."""
        keys: list[NDArray[np.int64]] = []
        for first, mask in masks:
            row, column = np.nonzero(mask.cpu().numpy())
            keys.append(row * self._width + column + first)
        self.keys = np.sort(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)

    def replace_by_positives(self, labels: LabelMatrix) -> None:
        """Hold the labels that are known to be present."""
        entry, row = labels.entries(self._shard.index)
        chosen = labels.values[entry] == POSITIVE
        self.keys = row[chosen] * self._width + labels.classes[entry[chosen]]

    def clear(self) -> None:
        """Hold nothing."""
        self.keys = np.empty(0, dtype=np.int64)

    def read(self, index: Tensor) -> Tensor:
        """Which classes of these images are in the set, B×L bool."""
        rows = self._shard.rows(index)
        _, row, label = entries_of(self.keys, rows, self._width)
        dense = np.zeros((len(rows), self._width), dtype=bool)
        dense[row, label] = True
        return torch.from_numpy(dense)

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        keys = []
        for part in parts:
            saved = part.tensors["keys"].numpy()
            index = part.shard.index[saved // self._width]
            mine = np.isin(index, self._shard.index)
            rows = np.searchsorted(self._shard.index, index[mine])
            keys.append(rows * self._width + saved[mine] % self._width)
        self.keys = np.sort(np.concatenate(keys))

    def state_dict(self) -> dict[str, Tensor]:
        """The keys."""
        return {"keys": torch.from_numpy(self.keys)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved keys."""
        self.keys = state["keys"].numpy().copy()


_PARTS = ("keys", "values", "cells")


class FoundLabels:
    """Pseudo-labels of this rank's images, by keys image·L + class, ascending.

    Attributes:
        made: whether somebody has looked, also if nothing was found.
    """

    def __init__(self, shard: Shard, width: int) -> None:
        self._shard, self._width = shard, width
        self.made = False
        self.keys = np.empty(0, dtype=np.int64)
        self.values = np.empty(0, dtype=np.int8)
        self.cells = np.empty(0, dtype=np.int16)

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def bytes(shard: Shard, width: int, limit: int) -> int:
        """What the lists of a shard take at most."""
        return 11 * len(shard) * min(limit, width)

    def replace(
        self,
        image: NDArray[np.int64],
        label: NDArray[np.int64],
        value: NDArray[np.int8],
        cell: NDArray[np.int16],
    ) -> None:
        """Hold exactly these labels, of those the ones that are about this rank's images."""
        mine = np.isin(image, self._shard.index)
        keys = (image * self._width + label)[mine]
        order = np.argsort(keys, kind="stable")
        self.keys, self.values, self.cells = keys[order], value[mine][order], cell[mine][order]
        self.made = True

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The labels of these images, B×L int8 with -1 for none, and the cells that they were found in, B×L."""
        images = self._shard.index[self._shard.rows(index)]
        entry, row, label = entries_of(self.keys, images, self._width)
        labels = np.full((len(images), self._width), UNKNOWN, dtype=np.int8)
        cells = np.zeros((len(images), self._width), dtype=np.int16)
        labels[row, label], cells[row, label] = self.values[entry], self.cells[entry]
        return torch.from_numpy(labels), torch.from_numpy(cells)

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        keys, values, cells = (np.concatenate([part.tensors[name].numpy() for part in parts]) for name in _PARTS)
        self.replace(keys // self._width, keys % self._width, values, cells)
        self.made = any(bool(part.tensors["made"]) for part in parts)

    def state_dict(self) -> dict[str, Tensor]:
        """The list."""
        return {**{name: torch.from_numpy(getattr(self, name)) for name in _PARTS}, "made": torch.tensor(self.made)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back a saved list."""
        for name in _PARTS:
            setattr(self, name, state[name].numpy().copy())
        self.made = bool(state["made"])


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


NOTHING = -1.0


class PseudoLabels:
    """Soft or hard labels, one row an image of this rank."""

    def __init__(self, labels: LabelMatrix, shard: Shard) -> None:
        self._shard = shard
        self.values = torch.full((len(shard), labels.width), NOTHING, dtype=torch.float16)

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard) -> int:
        """What the table of a shard takes."""
        return 2 * len(shard) * labels.width

    @property
    def given(self) -> Tensor:
        """n×L bool, which entries have a label, in the order of the shard."""
        return self.values >= 0

    def clear(self) -> None:
        """Forget all labels."""
        self.values.fill_(NOTHING)

    def give(self, mask: Tensor, values: Tensor | float) -> None:
        """Label the entries of an n×L mask over this rank's images, each with its value, or all with one."""
        if isinstance(values, Tensor):
            self.values[mask] = values[mask].to(self.values.dtype)
        else:
            self.values[mask] = values

    def read(self, index: Tensor) -> Tensor:
        """The labels of these images, B×L float32; -1 where there is none."""
        return self.values[torch.from_numpy(self._shard.rows(index))].float()

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        self.load_state_dict({"values": self._shard.collect(parts, "values")})

    def state_dict(self) -> dict[str, Tensor]:
        """The whole table."""
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back a saved table."""
        self.values.copy_(state["values"])
