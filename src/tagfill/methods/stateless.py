"""What a method is made of when it remembers nothing: only its loss differs."""

from __future__ import annotations

from torch import Tensor

from tagfill.contract import Batch, Decisions, Prediction, Task


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
