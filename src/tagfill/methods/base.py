"""What methods are built from: base classes, sums of methods, and what several methods need from a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tagfill.contract import Batch, Decisions, Method, Prediction, TaggerEvidence, Task
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE

# "unlabelled_images" is the spelling of version 0.1
PseudoLabelScope = Literal["unlabeled_images", "all_unknown", "unlabelled_images"]


class BaseMethod:
    """A method without memory or schedule; subclasses define the loss and override whatever else they need.

    Attributes:
        needs: see `Method`.
        paper: where it was published, as `tagfill list methods` shows it.
        learns_from_labels: `always`; `never` for a term that must be added to a method that does; `alone` for one that
            does only where no other method of a sum does.
    """

    needs: frozenset[str] = frozenset()
    paper: str = ""
    learns_from_labels: Literal["always", "never", "alone"] = "always"

    def first_epoch(self, epochs: int) -> int:
        """The first of a stage's epochs in which it is more than the simpler method that it begins as."""
        return 1

    def setup(self, task: Task) -> None:
        """Nothing to prepare."""

    def begin_epoch(self, epoch: int) -> None:
        """No schedule."""

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """The terms of the loss."""
        raise TypeError(f"{type(self).__name__} does not define its loss")

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Nothing to remember."""

    def decisions(self) -> Decisions | None:
        """Labels are used unchanged."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing to save."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Nothing to load."""


class Scheduled(BaseMethod):
    """A method whose loss depends on the epoch, which a run that resumes within an epoch must know."""

    _epoch = 1

    def begin_epoch(self, epoch: int) -> None:
        """Remember the epoch, counted from 1."""
        self._epoch = epoch

    def state_dict(self) -> dict[str, Tensor]:
        """The epoch."""
        return {"epoch": torch.tensor(self._epoch)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue in that epoch."""
        self._epoch = int(state["epoch"])


class LossMethod(BaseMethod):
    """A method that is a loss of logits and labels and nothing else.

    Args:
        name: of the method and of its term.
        function: the loss.
        paper: where it was published.
        from_task: returns further options of the loss, which depend on the task.
        needs: what it asks of the data.
        scale: factor of the loss.
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
        self.name, self._function, self._options = name, function, options
        self._from_task, self._scale = from_task, scale
        self.paper, self.needs = paper, needs

    def setup(self, task: Task) -> None:
        """Compute the options that depend on the task."""
        if self._from_task is not None:
            self._options = self._options | self._from_task(task)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """One term, named after the method."""
        value = self._function(prediction.logits, batch.labels, **self._options)
        return {self.name: value if self._scale == 1 else self._scale * value}


def first_epoch(method: Method, epochs: int) -> int:
    """The first of a stage's epochs in which a method is more than the simpler one that it begins as.

    Args:
        method: of any kind; 1 for one that does not say.
        epochs: of the stage.
    """
    found: int = method.first_epoch(epochs) if isinstance(method, BaseMethod | Sum) else 1
    return found


class Sum:
    """Methods whose losses are added. Each keeps its own state, and they share memory by name."""

    def __init__(self, parts: list[Method]) -> None:
        self._parts = parts
        self.needs = frozenset().union(*(part.needs for part in parts))

    def first_epoch(self, epochs: int) -> int:
        """The last of the first epochs of all parts."""
        return max(first_epoch(part, epochs) for part in self._parts)

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
            name: term for part in self._parts for name, term in part.loss(*_views_for(part, batch, prediction)).items()
        }

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Let each update its memory; shared memory is written by the first."""
        for part in self._parts:
            part.observe(*_views_for(part, batch, prediction))

    def decisions(self) -> Decisions | None:
        """The decisions of all parts that make any."""
        found = [decided for part in self._parts if (decided := part.decisions()) is not None]
        return Decisions.join(found) if found else None

    def state_dict(self) -> dict[str, Tensor]:
        """The state of each, numbered."""
        return {f"{at}.{k}": v for at, part in enumerate(self._parts) for k, v in part.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load each."""
        for at, part in enumerate(self._parts):
            part.load_state_dict({k.partition(".")[2]: v for k, v in state.items() if k.partition(".")[0] == str(at)})


def _views_for(part: Method, batch: Batch, prediction: Prediction) -> tuple[Batch, Prediction]:
    """What a part of a sum sees: all views, or only the first if it did not ask for several."""
    return (batch, prediction) if "weak+strong" in part.needs else of_view(batch, prediction, batch.views[0])


def of_view(batch: Batch, prediction: Prediction, name: str) -> tuple[Batch, Prediction]:
    """The rows of a batch and its prediction that belong to one view of each image.

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
    seen = Batch(batch.index, batch.labels, batch.inputs[rows], geometry, (name,), batch.marks, batch.host_labels)
    predicted = Prediction(
        prediction.logits[rows], part(prediction.maps), part(prediction.features), part(prediction.attention)
    )
    return seen, predicted


def pseudo_label_decisions(index: Tensor, pseudo: Tensor) -> Decisions:
    """Pseudo-labels of a batch as decisions, present ones first.

    Args:
        index: B, the images.
        pseudo: B×L, 1 present, 0 absent, -1 where there is no pseudo-label.
    """
    return Decisions.join(
        [Decisions.of(index, pseudo == value, "pseudo-labelled", value) for value in (POSITIVE, NEGATIVE)]
    )


def expected_positives(method: str, given: float | None, task: Task) -> float:
    """κ or K: the expected number of positives per image, from the method's option or the task.

    Args:
        method: its name, for the error.
        given: the method's option `expected`.
        task: knows the number of the run, given or estimated.

    Raises:
        TagfillError: if neither is known.
    """
    expected = given if given is not None else task.expected_positives
    if expected is None:
        raise TagfillError(
            f"The method '{method}' needs the expected number of positives per image: set expected_positives or "
            f"options.{method}.expected, or add a validation split with complete labels to estimate it from."
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
    """Predict this rank's training images with the current model, in evaluation mode.

    Returns:
        n×L probabilities in float16, in the order of `task.shard`; NaN for an image that cannot be decoded.
    """
    scores = torch.full((len(task.shard), len(task.classes)), torch.nan, dtype=torch.float16)
    for batch, prediction in task.predict("train"):
        rows = np.searchsorted(task.shard, batch.index.cpu().numpy())
        scores[torch.from_numpy(rows)] = prediction.logits.sigmoid().half().cpu()
    return scores


def evidence_state(evidence: TaggerEvidence) -> dict[str, Tensor]:
    """State that tells this evidence of other taggers from any other."""
    return {"checksum": torch.tensor(evidence.checksum)}


def check_evidence(evidence: TaggerEvidence, state: dict[str, Tensor]) -> None:
    """Raise if a checkpoint was made with other evidence."""
    if int(state["checksum"]) != evidence.checksum:
        raise TagfillError(
            "The evidence of the dataset is not that with which this run began; restore it, or begin a new run."
        )


def by_label_state(option: str, values: Sequence[float]) -> tuple[float, float, float]:
    """Three numbers, for positives, negatives and unknowns.

    Args:
        option: its name, for the error.
        values: as the user gave them.

    Raises:
        TagfillError: if there are not three.
    """
    if len(values) != 3:
        raise TagfillError(f"{option} is {list(values)}; give three numbers, for positives, negatives and unknowns.")
    positives, negatives, unknowns = values
    return positives, negatives, unknowns
