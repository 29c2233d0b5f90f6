"""How often each class is predicted: the mean probability over all visits so far.

    prior_i = mean over visits of f_i          f in training mode, as it was at each visit

L sums and one count for each rank; they are added over ranks when the mean is read.


What a class looks like to the network: the mean feature of all places where it was seen.

    μ_c = mean of the features at the places of class c
    D_c(r) = 1 − cos(feature of r, μ_c)                      in [0, 2]

L×D sums, whatever the number of images; distances are taken a block of classes at a time.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from tagfill.contract import Ranks
from tagfill.errors import TagfillError
from tagfill.memory.base import SavedPart, Shard


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


_CLASSES_AT_ONCE = 256
FAR = 4.0  # the distance of a class without a prototype: farther than any


class Prototypes:
    """Mean features of L classes, added up place by place.

    >>> prototypes = Prototypes(2, 2)
    >>> prototypes.add(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0]))
    >>> prototypes.nearest(torch.tensor([[[[0.0, 5.0]], [[2.0, 0.0]]]]))[0]
    tensor([[0., 4.]])
    """

    def __init__(self, classes: int, channels: int) -> None:
        self.sums = torch.zeros(classes, channels, dtype=torch.float64)
        self.counts = torch.zeros(classes, dtype=torch.int64)

    @property
    def known(self) -> Tensor:
        """L bool, the classes that were seen anywhere."""
        return self.counts > 0

    def add(self, features: Tensor, label: Tensor) -> None:
        """Places, n×D, and the class that was seen at each."""
        self.sums.index_add_(0, label.cpu(), features.double().cpu())
        self.counts += torch.bincount(label.cpu(), minlength=len(self.counts))

    def share(self, ranks: Ranks) -> None:
        """Add up what all processes saw."""
        self.sums, self.counts = ranks.sum(self.sums), ranks.sum(self.counts)

    def means(self) -> Tensor:
        """μ, L×D float32; zero for a class without a place."""
        return (self.sums / self.counts.clamp(min=1)[:, None]).float()

    def nearest(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Of each image and class, the least distance over cells, and the cell that has it.

        Args:
            features: B×D×H×W, or B×D as one cell.

        Returns:
            B×L distances, `FAR` for a class without a prototype, and B×L cells counted row by row.
        """
        places = F.normalize(features.float().flatten(2) if features.ndim == 4 else features.float()[:, :, None], dim=1)
        means, known = F.normalize(self.means().to(places.device), dim=1), self.known.to(places.device)
        blocks = (means[at : at + _CLASSES_AT_ONCE] for at in range(0, len(means), _CLASSES_AT_ONCE))
        found = [torch.einsum("bdr,ld->blr", places, block).max(-1) for block in blocks]
        likeness, cell = (torch.cat([each[at] for each in found], dim=1) for at in (0, 1))
        return torch.where(known, 1 - likeness, FAR), cell
