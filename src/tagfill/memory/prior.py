"""How often each class is predicted: the mean probability over all visits so far.

    prior_i = mean over visits of f_i          f in training mode, as it was at each visit

L sums and one count for each rank; they are added over ranks when the mean is read.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tagfill.contract import Ranks
from tagfill.errors import TagfillError
from tagfill.memory.shard import SavedPart, Shard


class Prior:
    """Sums of predicted probabilities and the number of visits that they are over."""

    def __init__(self, shard: Shard, width: int) -> None:
        self._shard = shard
        self._sums = torch.zeros(width, dtype=torch.float64)
        self._visits = torch.zeros((), dtype=torch.int64)

    @staticmethod
    def bytes(width: int) -> int:
        """What the sums and the count take."""
        return 8 * (width + 1)

    def update(self, probabilities: Tensor) -> None:
        """Count one more visit of some images, B×L."""
        self._sums += probabilities.double().sum(0).cpu()
        self._visits += len(probabilities)

    def clear(self) -> None:
        """Begin anew."""
        self._sums.zero_()
        self._visits.zero_()

    def visits(self, ranks: Ranks) -> int:
        """Visits of all ranks; each of them has to ask."""
        return int(ranks.sum(self._visits.clone()))

    def mean(self, ranks: Ranks) -> Tensor:
        """The mean probability of each class over the visits of all ranks, L float64; 0 without visits."""
        return ranks.sum(self._sums.clone()) / max(self.visits(ranks), 1)

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes counted: whoever has a process's first image now gets all of its sums."""
        self.clear()
        for part in parts:
            if len(part.shard) and part.shard.index[0] in self._shard.index:
                self._sums += part.tensors["sums"]
                self._visits += part.tensors["visits"]

    def state_dict(self) -> dict[str, Tensor]:
        """Sums and count."""
        return {"sums": self._sums, "visits": self._visits}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back saved sums and count."""
        self._sums.copy_(state["sums"])
        self._visits.copy_(state["visits"])


def read_prior(path: Path, classes: Sequence[str]) -> Tensor:
    """A prior from a CSV file with the columns `Classes` and `avg_pred`, in any order of rows.

    Args:
        path: the file.
        classes: the names that the task knows.

    Returns:
        L float64.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise TagfillError(f"The prior {path} cannot be read: {error.strerror}.") from None
    found: dict[str, float] = {}
    for line, row in enumerate(rows, start=2):
        try:
            found[row["Classes"]] = float(row["avg_pred"])
        except (KeyError, TypeError, ValueError):
            raise TagfillError(
                f"Line {line} of the prior {path} lacks a class or its number; the columns are Classes and avg_pred."
            ) from None
    if lacking := [name for name in classes if name not in found]:
        raise TagfillError(
            f"The prior {path} says nothing about the class '{lacking[0]}'; give a line for each class of the dataset."
        )
    return torch.tensor([found[name] for name in classes], dtype=torch.float64)
