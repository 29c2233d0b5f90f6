"""Running scores of a few classes an image, where those of all classes would not fit.

An image keeps the k classes that score highest after its first visit, s¹ = μ s⁰ + (1 − μ) f¹, its annotated classes
first, and never others. On those it holds exactly what `Scores` would; the score of every other class is zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tagfill.contract import POSITIVE, LabelMatrix
from tagfill.errors import TagfillError
from tagfill.memory.shard import SavedPart, Shard


def highest(scores: Tensor, annotated: Tensor, count: int) -> Tensor:
    """The classes to keep of each image: annotated ones, then those of the highest scores.

    Args:
        scores: B×L.
        annotated: B×L bool, at most `count` an image.
        count: k.

    Returns:
        B×k, ascending; among equal scores the class that comes first is kept.

    Example:
        >>> highest(torch.tensor([[0.1, 0.9, 0.5, 0.5]]), torch.tensor([[True, False, False, False]]), 3).tolist()
        [[0, 1, 2]]
    """
    order = torch.argsort(scores + 2.0 * annotated, dim=1, descending=True, stable=True)
    return order[:, :count].sort(1).values


def check_room(labels: LabelMatrix, count: int, what: str) -> None:
    """Refuse a k below what some image has annotated."""
    most = int(labels.positives_per_image().max(initial=0))
    if count < max(most, 1):
        raise TagfillError(
            f"The {what} are to keep {count} classes an image, but an image has {most} annotated ones; set "
            f"classes_per_image to {max(most, 1)} or more."
        )


class KeptScores:
    """Running probabilities of k classes an image, one row an image of this rank.

    Attributes:
        classes: n×k int32, ascending; -1 for an image that was not visited yet.
        values: n×k float16.
        visited: whether any image was seen yet.
    """

    def __init__(self, labels: LabelMatrix, shard: Shard, *, momentum: float, count: int) -> None:
        check_room(labels, count, "scores")
        self.momentum = momentum
        self.visited = False
        self._labels, self._shard = labels, shard
        self.classes = torch.full((len(shard), count), -1, dtype=torch.int32)
        self.values = torch.zeros(len(shard), count, dtype=torch.float16)

    @staticmethod
    def bytes(shard: Shard, count: int) -> int:
        """What classes and scores of a shard take."""
        return 6 * len(shard) * count

    def read(self, index: Tensor) -> Tensor:
        """The scores of these images, B×L float32; zero for classes that are not kept."""
        rows = torch.from_numpy(self._shard.rows(index))
        dense = self._observed(rows).float()
        seen = self.classes[rows, 0] >= 0
        dense[seen] = torch.zeros_like(dense[seen]).scatter(
            1, self.classes[rows[seen]].long(), self.values[rows[seen]].float()
        )
        return dense

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The scores of some classes for all images of this rank, n×c float16, and which of them are kept."""
        values = torch.zeros(len(self._shard), stop - start, dtype=torch.float16)
        kept = torch.zeros(values.shape, dtype=torch.bool)
        row, column = ((self.classes >= start) & (self.classes < stop)).nonzero(as_tuple=True)
        place = row, self.classes[row, column].long() - start
        values[place], kept[place] = self.values[row, column], True
        return values, kept

    def update(self, index: Tensor, probabilities: Tensor) -> None:
        """Move the scores of these images towards new probabilities, B×L."""
        rows, seen = torch.from_numpy(self._shard.rows(index)), probabilities.float().cpu()
        new = self.classes[rows, 0] < 0
        if bool(new.any()):
            annotated = self._observed(rows[new])
            first = self._average(annotated.float(), seen[new])
            self.classes[rows[new]] = highest(first, annotated, self.classes.shape[1]).int()
            self.values[rows[new]] = annotated.half().gather(1, self.classes[rows[new]].long())
        past = self.values[rows].float()
        self.values[rows] = self._average(past, seen.gather(1, self.classes[rows].long()))
        self.visited = True

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        tables = {name: self._shard.collect(parts, name) for name in ("classes", "values")}
        self.load_state_dict({**tables, "visited": parts[0].tensors["visited"]})

    def state_dict(self) -> dict[str, Tensor]:
        """Both tables."""
        return {"classes": self.classes, "values": self.values, "visited": torch.tensor(self.visited)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved tables."""
        self.classes.copy_(state["classes"])
        self.values.copy_(state["values"])
        self.visited = bool(state["visited"])

    def _average(self, past: Tensor, seen: Tensor) -> Tensor:
        return (self.momentum * past + (1 - self.momentum) * seen).half()

    def _observed(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self._labels.rows(self._shard.index[rows.numpy()]) == POSITIVE)
