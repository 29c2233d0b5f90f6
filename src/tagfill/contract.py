"""Where data, models and methods meet: what a batch is, what a prediction is, what a method may ask.

Data makes `Batch`es, a model turns their inputs into a `Prediction`, and a `Method` turns both into losses.
Neither side knows the other; each knows this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.annotations import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.images import Geometry

if TYPE_CHECKING:
    from tagfill.memory import Memory

__all__ = [
    "NEGATIVE",
    "POSITIVE",
    "UNKNOWN",
    "Batch",
    "Geometry",
    "LabelMatrix",
    "Method",
    "Prediction",
    "Ranks",
    "Task",
]


@dataclass(slots=True)
class Batch:
    """A few training images with what is known about them.

    Attributes:
        index: B, position in the training set, the same on any number of ranks.
        labels: B×L int8, 1 positive, 0 negative, -1 unknown; an unlabelled image is all -1.
        inputs: V·B pixels (×3×H×W uint8) or cached features (×D×G×G or ×D), view-major.
        geometry: of the V·B views.
        views: their names.
    """

    index: Tensor
    labels: Tensor
    inputs: Tensor
    geometry: Geometry
    views: tuple[str, ...] = ("train",)


@dataclass(slots=True)
class Prediction:
    """What a model says about V·B inputs.

    Attributes:
        logits: ×L float32.
        maps: ×L×H×W class maps, whose mean over cells gives the logits; None where nobody asked for them.
        features: ×D×H×W (or ×D, pooled).
    """

    logits: Tensor
    maps: Tensor | None = None
    features: Tensor | None = None

    def detach(self) -> Prediction:
        """The same values without a gradient."""
        maps, features = self.maps, self.features
        return Prediction(
            self.logits.detach(),
            None if maps is None else maps.detach(),
            None if features is None else features.detach(),
        )


class Ranks:
    """What processes that train together may ask of each other; this one stands alone.

    A distributed version overrides `sum` and `gather`; everything else is built from them.
    """

    rank: int = 0
    world: int = 1

    def sum(self, values: Tensor) -> Tensor:
        """The elementwise sum over all ranks."""
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        """Everybody's tensor, in the order of ranks; sizes may differ in the first dimension."""
        return [values]

    def top_per_class(self, values: Tensor, index: Tensor, counts: Tensor) -> Tensor:
        """The images with the largest values of each class, over all ranks.

        Args:
            values: n×L float16, not negative; this rank's images.
            index: n, the images' positions in the training set.
            counts: L, how many to take of each class; at most the number of images in all.

        Returns:
            n×L bool; among equal values the smaller index is taken.
        """
        bits = values.view(torch.int16)  # halves that are not negative sort like the integers of their bits
        threshold = self._largest(lambda at: (bits >= at).sum(0), counts, high=1 << 15)
        above = bits > threshold
        equal = bits == threshold
        open_places = counts - self.sum(above.sum(0))
        column = index.to(torch.int64)[:, None]
        last = self._largest(lambda at: (equal & (column < 2**31 - at)).sum(0), open_places, high=1 << 31)
        ties = equal & (column < 2**31 - last) & (open_places > 0)
        return (above | ties) & (counts > 0)

    def _largest(self, count: Callable[[Tensor], Tensor], wanted: Tensor, high: int) -> Tensor:
        """Per class, the largest number in [0, high) at which at least `wanted` entries are still counted."""
        low, top = torch.zeros_like(wanted), torch.full_like(wanted, high)
        while bool(((top - low) > 1).any()):
            middle = (low + top) // 2
            enough = self.sum(count(middle)) >= wanted
            low, top = torch.where(enough, middle, low), torch.where(enough, top, middle)
        return low


@dataclass
class Task:
    """What a method works on; one for each stage of training.

    Attributes:
        classes: names, in the order of the labels.
        labels: what is known about the training images.
        size: the number of training images, N.
        epochs: of this stage.
        seed: of the run.
        grid: rows and columns of class maps, None where the head has none.
        expected_positives: true labels per image on average, given or estimated.
        lr: the current learning rate of the classifier; the loop keeps it up to date.
        memory: per-image state, one object per name.
        ranks: the other processes.
        predict: an evaluation pass over a split.
        shard: the images whose state this rank keeps.
    """

    classes: tuple[str, ...]
    labels: LabelMatrix
    size: int
    epochs: int
    seed: int
    grid: tuple[int, int] | None
    expected_positives: float | None
    lr: float
    memory: Memory
    ranks: Ranks
    predict: Callable[[str], Iterator[tuple[Batch, Prediction]]]
    shard: NDArray[np.int64]


class Method(Protocol):
    """A way to learn from labels with gaps.

    Attributes:
        needs: what it asks of the model and the data; `maps` is the only thing so far.
    """

    needs: frozenset[str]

    def setup(self, task: Task) -> None:
        """Once a stage: look at the task and ask for memory."""

    def begin_epoch(self, epoch: int) -> None:
        """Before each epoch, counted from 1."""

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """The terms of the loss, to be added; reads memory, never writes it."""
        ...

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """After the optimiser's step, with the detached prediction: the only place that writes memory."""

    def state_dict(self) -> dict[str, Tensor]:
        """What it remembers besides memory."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
