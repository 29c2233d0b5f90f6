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

from tagfill.dataset import masks
from tagfill.images import Geometry
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, Overlay

if TYPE_CHECKING:
    from tagfill.memory import Memory


__all__ = [
    "NEGATIVE",
    "POSITIVE",
    "UNKNOWN",
    "Batch",
    "Decisions",
    "Geometry",
    "LabelMatrix",
    "Marks",
    "Method",
    "Overlay",
    "Prediction",
    "Ranks",
    "Task",
]


@dataclass(slots=True)
class Marks:
    """Points, boxes and masks of a few images, flat, in coordinates of the whole image.

    Attributes:
        image: n, row of the batch that each lies in.
        label: n, its class.
        box: n×4 float64, centre and size relative to the image; a point has size 0.
        masks: n, run lengths with height and width where a mask was drawn, else None.
    """

    image: NDArray[np.int64]
    label: NDArray[np.int64]
    box: NDArray[np.float64]
    masks: tuple[tuple[bytes, int, int] | None, ...]

    def __len__(self) -> int:
        return len(self.image)

    def strips(self, at: int) -> NDArray[np.float64]:
        """A mask as upright strips, n×4: left, top, right, bottom, relative to the image."""
        mask = self.masks[at]
        assert mask is not None
        rle, height, width = mask
        column, top, bottom = masks.strips(rle, height).T
        return np.stack([column / width, top / height, (column + 1) / width, bottom / height], axis=1)


@dataclass(slots=True)
class Batch:
    """A few training images with what is known about them.

    Attributes:
        index: B, position in the training set, the same on any number of ranks.
        labels: B×L int8, 1 positive, 0 negative, -1 unknown; an unlabelled image is all -1.
        inputs: V·B pixels (×3×H×W uint8) or cached features (×D×G×G or ×D), view-major.
        geometry: of the V·B views.
        views: their names; with several, rows v·B … (v+1)·B of inputs, geometry and prediction are those of view v.
        marks: where labels were seen in these images; None where nobody asked for them.
    """

    index: Tensor
    labels: Tensor
    inputs: Tensor
    geometry: Geometry
    views: tuple[str, ...] = ("train",)
    marks: Marks | None = None


@dataclass(slots=True)
class Prediction:
    """What a model says about V·B inputs.

    Attributes:
        logits: ×L float32, boosted if the head boosts.
        maps: ×L×H×W class maps before the boost; None where nobody asked for them.
        features: ×D×H×W (or ×D, pooled).
        attention: what the head attended to, as it documents; None where nobody asked for it.
    """

    logits: Tensor
    maps: Tensor | None = None
    features: Tensor | None = None
    attention: Tensor | None = None

    def detach(self) -> Prediction:
        """The same values without a gradient."""
        rest = (self.maps, self.features, self.attention)
        return Prediction(self.logits.detach(), *(None if part is None else part.detach() for part in rest))


@dataclass(frozen=True, slots=True)
class Decisions:
    """Labels that a method did not take as they are, in its last step.

    Attributes:
        image: n, positions in the training set.
        label: n, classes.
        kind: n, `rejected` (left out because its loss is large), `flipped` (read as present from now on or for this
            step), `ignored` (left out for another reason) or `pseudo-labelled`.
        value: n, what it was read as: 1 present, 0 absent, -1 nothing.
    """

    image: NDArray[np.int64]
    label: NDArray[np.int64]
    kind: NDArray[np.str_]
    value: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.image)

    @classmethod
    def of(cls, index: Tensor, mask: Tensor, kind: str, value: int) -> Decisions:
        """The entries of a B×L mask over a batch of images, all decided alike."""
        row, label = np.nonzero(mask.cpu().numpy())
        image = index.cpu().numpy()[row]
        return cls(image, label, np.full(len(row), kind), np.full(len(row), value, dtype=np.int8))

    @classmethod
    def join(cls, parts: list[Decisions]) -> Decisions:
        """Those of several methods together."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


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
        predict: an evaluation pass over this rank's part of a split, which is `shard` of the training split.
        shard: the images whose state this rank keeps, ascending.
        frozen_features: N×D float32, pooled features of all training images by the pretrained backbone.
        truth: complete labels of the training images of a simulated dataset, for oracles that say so in `needs`, and
            for reports that change nothing about training.
        say: one line worth knowing, for whoever watches the run.
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
    frozen_features: Callable[[], NDArray[np.float32]]
    truth: Callable[[], LabelMatrix]
    say: Callable[[str], None] = lambda text: None


class Method(Protocol):
    """A way to learn from labels with gaps.

    Attributes:
        needs: what it asks of the model and the data: `maps`, `marks`, `unlabeled`, `weak+strong`, `neighbors`,
            `expected_positives`, `prior`, `hierarchy`, `memory`, `truth`.
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
        """After the backward pass, with the detached prediction: within an epoch the only place that writes memory.

        The optimiser steps after it, once all parts of the batch are done; what is written is the same either way.
        """

    def decisions(self) -> Decisions | None:
        """What it decided about labels in its last step; None for a method that takes labels as they are."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """What it remembers besides memory."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
