"""What a method is made of when it remembers nothing: only its loss differs.

What a method is made of that changes with the epoch and remembers nothing else.

What methods that give labels by themselves decided in their last step.

The number of labels that an image is expected to have, which some methods cannot do without.

The grid of class maps, which some methods cannot do without.

An evaluation pass over the training images, for methods that label anew between two epochs.

Batches with several views of each image, one view at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagfill.contract import Batch, Decisions, Method, Prediction, Task
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE


class Stateless:
    """A method without memory or schedule; subclasses say what the loss is, and override what they do need.

    Attributes:
        paper: where it was published, as `tagfill list methods` shows it.
    """

    needs: frozenset[str] = frozenset()
    paper: str = ""

    def setup(self, task: Task) -> None:
        """Nothing to prepare."""

    def begin_epoch(self, epoch: int) -> None:
        """Every epoch is alike."""

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """The terms of the loss."""
        raise TypeError(f"{type(self).__name__} does not define its loss")

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Nothing to remember."""

    def decisions(self) -> Decisions | None:
        """Labels are taken as they are."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing to save."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Nothing to take back."""


class Scheduled(Stateless):
    """A method whose loss depends on the epoch, which a run that is resumed within one has to know."""

    _epoch = 1

    def begin_epoch(self, epoch: int) -> None:
        """Remember which one it is, from 1."""
        self._epoch = epoch

    def state_dict(self) -> dict[str, Tensor]:
        """The epoch."""
        return {"epoch": torch.tensor(self._epoch)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on in that epoch."""
        self._epoch = int(state["epoch"])


class Plain(Stateless):
    """A loss of logits and labels with its options.

    Args:
        name: of the method and of its term.
        function: the loss.
        paper: where it was published.
        from_task: gives further options, which depend on the task.
        needs: what it asks of the data.
        scale: of the loss.
        options: of the loss.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Tensor],
        paper: str = "",
        *,
        from_task: Callable[[Task], dict[str, Any]] | None = None,
        needs: frozenset[str] = frozenset(),
        scale: float = 1.0,
        **options: Any,
    ) -> None:
        self._name, self._function, self._options = name, function, options
        self._from_task, self._scale = from_task, scale
        self.paper, self.needs = paper, needs

    def setup(self, task: Task) -> None:
        """Take what depends on the task from it."""
        if self._from_task is not None:
            self._options = self._options | self._from_task(task)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """One term, named after the method."""
        value = self._function(prediction.logits, batch.labels, **self._options)
        return {self._name: value if self._scale == 1 else self._scale * value}


class Sum:
    """Methods whose losses are added; each keeps its own state, and they share memory by name."""

    def __init__(self, parts: list[Method]) -> None:
        self._parts = parts
        self.needs = frozenset().union(*(part.needs for part in parts))

    def setup(self, task: Task) -> None:
        """Set up each."""
        for part in self._parts:
            part.setup(task)

    def begin_epoch(self, epoch: int) -> None:
        """Begin the epoch in each."""
        for part in self._parts:
            part.begin_epoch(epoch)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """All terms."""
        return {
            name: term for part in self._parts for name, term in part.loss(*_shown(part, batch, prediction)).items()
        }

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Let each remember; a shared memory is written by whoever comes first."""
        for part in self._parts:
            part.observe(*_shown(part, batch, prediction))

    def decisions(self) -> Decisions | None:
        """Those of all parts that decide anything."""
        found = [decided for part in self._parts if (decided := part.decisions()) is not None]
        return Decisions.join(found) if found else None

    def state_dict(self) -> dict[str, Tensor]:
        """The state of each, numbered."""
        return {f"{at}.{k}": v for at, part in enumerate(self._parts) for k, v in part.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Give each its own back."""
        for at, part in enumerate(self._parts):
            part.load_state_dict({k.partition(".")[2]: v for k, v in state.items() if k.partition(".")[0] == str(at)})


def _shown(part: Method, batch: Batch, prediction: Prediction) -> tuple[Batch, Prediction]:
    """What a part of a sum looks at: all views, or the first if it did not ask for several."""
    return (batch, prediction) if "weak+strong" in part.needs else of_view(batch, prediction, batch.views[0])


def pseudo_labelled(index: Tensor, pseudo: Tensor) -> Decisions:
    """Pseudo-labels of a batch as decisions, those that are present first.

    Args:
        index: B, the images.
        pseudo: B×L, 1 present, 0 absent, -1 where no label was given.
    """
    return Decisions.join(
        [Decisions.of(index, pseudo == value, "pseudo-labelled", value) for value in (POSITIVE, NEGATIVE)]
    )


def expected_positives(method: str, given: float | None, task: Task) -> float:
    """κ or K: the method's own option, else what the run was given or estimated.

    Args:
        method: its name, for the error.
        given: the method's option `expected`.
        task: knows the run's number.

    Raises:
        TagfillError: if nobody knows the number.
    """
    expected = given if given is not None else task.expected_positives
    if expected is None:
        raise TagfillError(
            f"The method '{method}' needs the expected number of present labels an image: set expected_positives or "
            f"options.{method}.expected, or give a validation split with complete labels to estimate it from."
        )
    return expected


def grid_of(method: str, task: Task) -> tuple[int, int]:
    """Rows and columns of the class maps.

    Args:
        method: its name, for the error.
        task: knows the grid of the head.

    Raises:
        TagfillError: if the head has no class maps.
    """
    if task.grid is None:
        raise TagfillError(f"The method '{method}' needs class maps; choose a head that makes them, such as cam.")
    return task.grid


def training_scores(task: Task) -> Tensor:
    """What the model says about this rank's training images now, in evaluation mode.

    Returns:
        n×L probabilities in float16, in the order of `task.shard`; NaN for an image that does not decode.
    """
    scores = torch.full((len(task.shard), len(task.classes)), torch.nan, dtype=torch.float16)
    for batch, prediction in task.predict("train"):
        rows = np.searchsorted(task.shard, batch.index.cpu().numpy())
        scores[torch.from_numpy(rows)] = prediction.logits.sigmoid().half().cpu()
    return scores


def of_view(batch: Batch, prediction: Prediction, name: str) -> tuple[Batch, Prediction]:
    """What a batch and its prediction say about one view of each image.

    Args:
        batch: of V·B inputs, view after view.
        prediction: of the same.
        name: one of `batch.views`.
    """
    if batch.views == (name,):
        return batch, prediction
    size = len(batch.index)
    first = batch.views.index(name) * size
    rows = slice(first, first + size)

    def part(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[rows]

    geometry = batch.geometry.take(np.arange(first, first + size))
    seen = Batch(batch.index, batch.labels, batch.inputs[rows], geometry, (name,), batch.marks)
    said = Prediction(
        prediction.logits[rows], part(prediction.maps), part(prediction.features), part(prediction.attention)
    )
    return seen, said
