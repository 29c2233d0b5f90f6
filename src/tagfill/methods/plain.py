"""The baselines that are a loss and nothing else, in one table.

| name | unknown labels are | loss |
|---|---|---|
| `bce` | left out; meant for complete labels | binary cross-entropy, the ceiling of every comparison |
| `an` | absent | assume negative, the floor |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction
from tagfill.methods.stateless import Stateless


class Plain(Stateless):
    """A loss of logits and labels with its options."""

    def __init__(self, name: str, function: Callable[..., Tensor], **options: Any) -> None:
        self._name, self._function, self._options = name, function, options

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """One term, named after the method."""
        return {self._name: self._function(prediction.logits, batch.labels, **self._options)}


def bce() -> Plain:
    """Binary cross-entropy over the labels that are known."""
    return Plain("bce", losses.binary)


def an() -> Plain:
    """Assume negative: every label that is not known to be present is absent."""
    return Plain("an", losses.assume_negative)


PLAIN: dict[str, Callable[..., Plain]] = {"bce": bce, "an": an}
