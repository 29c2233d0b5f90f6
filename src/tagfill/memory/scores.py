"""Running scores of each image and class, and the set of likely positives that is chosen by them.

    s⁰ = 1[z = 1],   sᵗ = μ sᵗ⁻¹ + (1 − μ) fᵗ

Scores are kept in half precision, n×L; averages are computed in single precision.

Where the scores of all classes would not fit, an image keeps k classes: its annotated ones, then those that score
highest after its first visit, s¹ = μ s⁰ + (1 − μ) f¹. They are never replaced by others. On them `TopKScores` holds
exactly what `Scores` would; the score of every other class is zero.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.memory.base import Flag, Rows, Shard, Sparse, Store, find_entries

_ROWS_PER_BLOCK = 4096


class Scores(Store):
    """Running probabilities, one row per image of this rank.

    Attributes:
        values: n×L float16.
        visited: whether any image was seen yet.
    """

    values: Tensor
    visited: bool

    def __init__(self, labels: LabelMatrix, shard: Shard, *, momentum: float) -> None:
        super().__init__(shard, values=Rows((labels.width,), torch.float16), visited=Flag())
        self.momentum = momentum
        self._labels = labels

    def _initialize(self) -> None:
        for start in range(0, len(self._shard), _ROWS_PER_BLOCK):
            observed = self._labels.rows(self._shard.index[start : start + _ROWS_PER_BLOCK]) == POSITIVE
            self.values[start : start + len(observed)] = torch.from_numpy(observed).half()

    def read(self, index: Tensor) -> Tensor:
        """The scores of these images, B×L float32."""
        self.settle(index)
        return self.values[torch.from_numpy(self._shard.rows(index))].float()

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The scores of some classes for all images of this rank, n×c float16, and None: all of them are kept."""
        self.settle()
        return self.values[:, start:stop], None

    def update(self, index: Tensor, probabilities: Tensor) -> None:
        """Move the scores of these images towards new probabilities, B×L."""
        self._write_soon(index, probabilities.float())
        self.visited = True

    def _write(self, index: Tensor, values: Tensor, *rest: object) -> None:
        rows = torch.from_numpy(self._shard.rows(index))
        average = self.momentum * self.values[rows].float() + (1 - self.momentum) * values
        self.values[rows] = average.half()


class TopKScores(Store):
    """Running probabilities of k classes per image, one row per image of this rank.

    Attributes:
        classes: n×k int32, ascending; -1 for an image that was not visited yet.
        values: n×k float16.
        visited: whether any image was seen yet.
    """

    classes: Tensor
    values: Tensor
    visited: bool

    def __init__(self, labels: LabelMatrix, shard: Shard, *, momentum: float, count: int) -> None:
        check_classes_per_image(labels, count, "scores")
        super().__init__(
            shard,
            classes=Rows((count,), torch.int32, fill=-1),
            values=Rows((count,), torch.float16),
            visited=Flag(),
        )
        self.momentum = momentum
        self._labels = labels

    def read(self, index: Tensor) -> Tensor:
        """The scores of these images, B×L float32; zero for classes that are not kept."""
        self.settle(index)
        rows = torch.from_numpy(self._shard.rows(index))
        dense = self._observed(rows).float()
        seen = self.classes[rows, 0] >= 0
        dense[seen] = torch.zeros_like(dense[seen]).scatter(
            1, self.classes[rows[seen]].long(), self.values[rows[seen]].float()
        )
        return dense

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The scores of some classes for all images of this rank, n×c float16, and which of them are kept."""
        self.settle()
        values = torch.zeros(len(self._shard), stop - start, dtype=torch.float16)
        kept = torch.zeros(values.shape, dtype=torch.bool)
        row, column = ((self.classes >= start) & (self.classes < stop)).nonzero(as_tuple=True)
        place = row, self.classes[row, column].long() - start
        values[place], kept[place] = self.values[row, column], True
        return values, kept

    def update(self, index: Tensor, probabilities: Tensor) -> None:
        """Move the scores of these images towards new probabilities, B×L."""
        self._write_soon(index, probabilities.float())
        self.visited = True

    def _write(self, index: Tensor, values: Tensor, *rest: object) -> None:
        rows, seen = torch.from_numpy(self._shard.rows(index)), values
        new = self.classes[rows, 0] < 0
        if bool(new.any()):
            annotated = self._observed(rows[new])
            first = self._average(annotated.float(), seen[new])
            self.classes[rows[new]] = top_classes(first, annotated, self.classes.shape[1]).int()
            self.values[rows[new]] = annotated.half().gather(1, self.classes[rows[new]].long())
        past = self.values[rows].float()
        self.values[rows] = self._average(past, seen.gather(1, self.classes[rows].long()))

    def _average(self, past: Tensor, seen: Tensor) -> Tensor:
        return (self.momentum * past + (1 - self.momentum) * seen).half()

    def _observed(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self._labels.rows(self._shard.index[rows.numpy()]) == POSITIVE)


def top_classes(scores: Tensor, annotated: Tensor, count: int) -> Tensor:
    """The classes that each image keeps: annotated ones, then those with the highest scores.

    Args:
        scores: B×L, in [0, 1].
        annotated: B×L bool, at most `count` per image.
        count: k.

    Returns:
        B×k, ascending; of equal scores the smaller class is kept.

    Example:
        >>> top_classes(torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[True, False, False]]), 2).tolist()
        [[0, 1]]
    """
    order = torch.argsort(scores + 2.0 * annotated, dim=1, descending=True, stable=True)
    return order[:, :count].sort(1).values


def check_classes_per_image(labels: LabelMatrix, count: int, what: str) -> None:
    """Raise if an image has more than `count` annotated classes.

    Raises:
        TagfillError: naming the smallest number that works.
    """
    most = int(labels.positives_per_image().max(initial=0))
    if count < max(most, 1):
        raise TagfillError(
            f"The {what} are to keep {count} classes per image, but an image has {most} annotated ones; set "
            f"classes_per_image to {max(most, 1)} or more."
        )


class EntrySet(Store):
    """A set of (image, class) entries of this rank's images, such as likely positives.

    Args:
        shard: the images of this rank.
        width: L.
        most: entries to plan for; None plans for all.

    Attributes:
        keys: row·L + class of each entry, ascending.
    """

    keys: NDArray[np.int64]

    def __init__(self, shard: Shard, width: int, *, most: int | None = None) -> None:
        every = len(shard) * width
        planned = every if most is None else min(most, every)
        super().__init__(shard, keys=Sparse(dtype=torch.int64, width=width, most=planned, by_row=True))
        self._width = width

    def __len__(self) -> int:
        return len(self.keys)

    def replace(self, masks: Iterable[tuple[int, Tensor]]) -> None:
        """Hold exactly the entries of a mask over this rank's images.

        Args:
            masks: blocks of classes: the first class of each block, and an n×c mask in the order of the shard.
        """
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

    def read(self, index: Tensor) -> Tensor:
        """Which classes of these images are in the set, B×L bool."""
        rows = self._shard.rows(index)
        _, row, label = find_entries(self.keys, rows, self._width)
        dense = np.zeros((len(rows), self._width), dtype=bool)
        dense[row, label] = True
        return torch.from_numpy(dense)
