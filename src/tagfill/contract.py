"""Where data, models and methods meet: batches, predictions, and what a method can ask for.

Data is served as a `Batch`, a model turns its inputs into a `Prediction`, and a `Method` turns both into losses. The
three do not import each other; each imports this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.dataset import masks
from tagfill.errors import TagfillError
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
    "TaggerEvidence",
    "Task",
    "upload",
]


@dataclass(slots=True)
class Marks:
    """Points, boxes and masks of the images of a batch, in coordinates of the whole image.

    Attributes:
        image: n, row of the batch.
        label: n, class.
        box: n×4 float64, center and size relative to the image; a point has size 0.
        masks: n, run lengths with height and width, or None without a mask.
    """

    image: NDArray[np.int64]
    label: NDArray[np.int64]
    box: NDArray[np.float64]
    masks: tuple[tuple[bytes, int, int] | None, ...]

    def __len__(self) -> int:
        return len(self.image)

    def strips(self, at: int) -> NDArray[np.float64]:
        """The mask of a mark as vertical strips, n×4: left, top, right, bottom, relative to the image."""
        mask = self.masks[at]
        assert mask is not None
        rle, height, width = mask
        column, top, bottom = masks.strips(rle, height).T
        return np.stack([column / width, top / height, (column + 1) / width, bottom / height], axis=1)


@dataclass(slots=True)
class Batch:
    """Training images with their known labels.

    Attributes:
        index: B, position in the training set, the same on any number of ranks.
        labels: B×L int8, 1 positive, 0 negative, -1 unknown; an unlabeled image is all -1.
        inputs: V·B pixels (×3×H×W uint8) or cached features (×D×G×G or ×D), view-major.
        geometry: crops and flips of the V·B views.
        views: names of the views; rows v·B … (v+1)·B of inputs, geometry and prediction belong to view v.
        marks: locations of labels in these images; None unless the method needs them.
        host_labels: the same labels on the host, if `labels` are on an accelerator. `index`, `geometry` and `marks`
            always stay on the host.
    """

    index: Tensor
    labels: Tensor
    inputs: Tensor
    geometry: Geometry
    views: tuple[str, ...] = ("train",)
    marks: Marks | None = None
    host_labels: Tensor | None = None

    @property
    def labels_on_host(self) -> Tensor:
        """The labels for computations on the CPU, without waiting for an accelerator."""
        return self.labels.cpu() if self.host_labels is None else self.host_labels

    def to(self, device: torch.device) -> Batch:
        """The batch with its inputs and labels on a device."""
        if device.type == "cpu":
            return self
        labels, inputs = upload(self.labels, device), upload(self.inputs, device)
        return replace(self, labels=labels, inputs=inputs, host_labels=self.labels)


def upload(values: Tensor, device: torch.device) -> Tensor:
    """Copy values from the host to a device, without waiting for what the device computes.

    A plain copy to a CUDA device waits for everything before it. MPS has no safe copy that does not wait.
    """
    if device.type == "cpu" or values.device == device:
        return values
    staged = values.pin_memory() if device.type == "cuda" and values.device.type == "cpu" else values
    return staged.to(device, non_blocking=device.type != "mps")


@dataclass(slots=True)
class Prediction:
    """The output of a model for V·B inputs.

    Attributes:
        logits: V·B×L float32, boosted if the head boosts.
        maps: V·B×L×H×W class maps before the boost; None unless the method needs them.
        features: V·B×D×H×W, or V·B×D if pooled.
        attention: attention maps as documented by the head; None unless requested.
    """

    logits: Tensor
    maps: Tensor | None = None
    features: Tensor | None = None
    attention: Tensor | None = None

    def cpu(self) -> Prediction:
        """The same values on the CPU."""
        rest = (self.maps, self.features, self.attention)
        return Prediction(self.logits.cpu(), *(None if part is None else part.cpu() for part in rest))

    def detach(self) -> Prediction:
        """The same values without gradients."""
        rest = (self.maps, self.features, self.attention)
        return Prediction(self.logits.detach(), *(None if part is None else part.detach() for part in rest))


class Decisions:
    """Labels that a method changed or left out in its last step.

    What `of` makes from a mask stays on the device of the mask until one of the attributes is read.

    Args:
        image: n, positions in the training set.
        label: n, classes.
        kind: n, `rejected` (left out because the loss is large), `flipped` (treated as present, for this step or from
            now on), `ignored` (left out for another reason) or `pseudo-labelled`.
        value: n, the value that was used instead: 1 present, 0 absent, -1 none.
    """

    def __init__(
        self,
        image: NDArray[np.int64],
        label: NDArray[np.int64],
        kind: NDArray[np.str_],
        value: NDArray[np.int8],
    ) -> None:
        self._masks: list[tuple[Tensor, Tensor, str, int]] = []
        self._columns: tuple[NDArray[Any], ...] | None = (image, label, kind, value)

    @classmethod
    def of(cls, index: Tensor, mask: Tensor, kind: str, value: int) -> Decisions:
        """The same decision for all entries of a B×L mask over a batch of images."""
        return cls._of_masks([(index, mask, kind, value)])

    @classmethod
    def _of_masks(cls, masks: list[tuple[Tensor, Tensor, str, int]]) -> Decisions:
        made = cls.__new__(cls)
        made._masks, made._columns = masks, None
        return made

    @classmethod
    def join(cls, parts: list[Decisions]) -> Decisions:
        """Concatenate the decisions of several methods."""
        if all(part._columns is None for part in parts):
            return cls._of_masks([mask for part in parts for mask in part._masks])
        return cls(*(np.concatenate(column) for column in zip(*(part._read() for part in parts), strict=True)))

    def counts(self) -> dict[str, Tensor | int]:
        """How many labels were decided in each way; numbers of masks stay on their device."""
        if self._columns is not None:
            return dict(Counter(self.kind.tolist()))
        counted: dict[str, Tensor | int] = {}
        for _, mask, kind, _ in self._masks:
            counted[kind] = counted.get(kind, 0) + mask.sum()
        return counted

    @property
    def image(self) -> NDArray[np.int64]:
        """n, positions in the training set."""
        return self._read()[0]

    @property
    def label(self) -> NDArray[np.int64]:
        """n, classes."""
        return self._read()[1]

    @property
    def kind(self) -> NDArray[np.str_]:
        """n, in which way it was decided."""
        return self._read()[2]

    @property
    def value(self) -> NDArray[np.int8]:
        """n, the value that was used instead."""
        return self._read()[3]

    def __len__(self) -> int:
        return len(self.image)

    def _read(self) -> tuple[NDArray[Any], ...]:
        """The four columns; copies masks to the host."""
        if self._columns is None:
            parts = []
            for index, mask, kind, value in self._masks:
                row, label = np.nonzero(mask.cpu().numpy())
                image = index.cpu().numpy()[row]
                parts.append((image, label, np.full(len(row), kind), np.full(len(row), value, dtype=np.int8)))
            self._columns = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        return self._columns


class Ranks:
    """Communication between the processes of a training run; this class is for a single process.

    A distributed version overrides `sum` and `gather`; everything else is built on them.
    """

    rank: int = 0
    world: int = 1

    def sum(self, values: Tensor) -> Tensor:
        """The elementwise sum over all ranks."""
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in rank order; sizes may differ in the first dimension."""
        return [values]

    def top_per_class(self, values: Tensor, index: Tensor, counts: Tensor) -> Tensor:
        """Select the images with the largest values of each class, over all ranks.

        Args:
            values: n×L float16, not negative, of this rank's images.
            index: n, positions of these images in the training set.
            counts: L, number of images to select per class, at most the number of images of all ranks.

        Returns:
            n×L bool. Of equal values, the image with the smaller index is selected.
        """
        bits = values.view(torch.int16)  # non-negative halves sort like the integers of their bits
        threshold = self._largest(lambda at: (bits >= at).sum(0), counts, high=1 << 15)
        above = bits > threshold
        equal = bits == threshold
        open_places = counts - self.sum(above.sum(0))
        column = index.to(torch.int64)[:, None]
        last = self._largest(lambda at: (equal & (column < 2**31 - at)).sum(0), open_places, high=1 << 31)
        ties = equal & (column < 2**31 - last) & (open_places > 0)
        return (above | ties) & (counts > 0)

    def _largest(self, count: Callable[[Tensor], Tensor], wanted: Tensor, high: int) -> Tensor:
        """Per class, the largest number in [0, high) for which `count` is at least `wanted`, by bisection."""
        low, top = torch.zeros_like(wanted), torch.full_like(wanted, high)
        while bool(((top - low) > 1).any()):
            middle = (low + top) // 2
            enough = self.sum(count(middle)) >= wanted
            low, top = torch.where(enough, middle, low), torch.where(enough, top, middle)
        return low


class TaggerEvidence(Protocol):
    """What other taggers say about the training images."""

    @property
    def trust(self) -> NDArray[np.float64]:
        """L: how well it ranks the known tags of each class, from 0 (chance) to 1."""
        ...

    @property
    def checksum(self) -> int:
        """Changes if a score does."""
        ...

    def probabilities(self, index: NDArray[np.integer], labels: NDArray[np.integer]) -> NDArray[np.float32]:
        """B×L debiased probabilities of these images, given their known labels; NaN where there is no evidence."""
        ...

    def softmax(self, index: NDArray[np.integer], temperature: float) -> NDArray[np.float32]:
        """B×L raw scores as probabilities that sum to one over the classes of an image; NaN without a score."""
        ...


def _no_evidence(names: Sequence[str] | None) -> TaggerEvidence:
    raise TagfillError("There is no evidence of other taggers to learn from.")


@dataclass
class Task:
    """The data and services that a method gets for one stage of training.

    Attributes:
        classes: names, in the order of the labels.
        labels: known labels of the training images.
        size: number of training images, N.
        epochs: number of epochs of this stage.
        seed: of the run.
        grid: rows and columns of class maps, None if the head has none.
        expected_positives: mean number of true labels per image, given or estimated.
        lr: current learning rate of the classifier; the training loop updates it.
        memory: per-image state, one object per name.
        ranks: communication with other processes.
        predict: runs an evaluation pass over this rank's part of a split; of the training split that is `shard`.
        shard: the images whose state this rank keeps, ascending.
        frozen_features: returns N×D float32, features of all training images, pooled, of the pretrained backbone.
        truth: returns the complete labels of the training images of a simulated dataset, for oracles that declare it in
            `needs`, and for reports that do not influence training.
        evidence: returns evidence of other taggers by its names, or all of it for None; raises if there is none.
        say: logs one line.
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
    evidence: Callable[[Sequence[str] | None], TaggerEvidence] = _no_evidence
    say: Callable[[str], None] = lambda text: None


class Method(Protocol):
    """A method to learn from partial labels.

    Attributes:
        needs: requirements on the model and the data: `maps`, `marks`, `unlabeled`, `weak+strong`, `neighbors`,
            `expected_positives`, `prior`, `memory`, `truth`, `evidence`.
    """

    needs: frozenset[str]

    def setup(self, task: Task) -> None:
        """Called once per stage: read the task and request memory."""

    def begin_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1."""

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Return the terms of the loss by name; they are summed. Reads memory and never writes it."""
        ...

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Called after the backward pass, with the detached prediction: the only place in an epoch that writes memory.

        The optimizer steps afterwards, once all micro-batches are done; what is written does not depend on that.
        """

    def decisions(self) -> Decisions | None:
        """Decisions about labels in the last step; None for a method that never changes labels."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """State besides memory."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the state returned by `state_dict`."""
