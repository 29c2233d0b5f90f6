"""Statistics of classes over a training set: how often each is predicted, and what it looks like to the network.

    prior_i = mean over visits of f_i                        f in training mode, at each visit
    μ_c     = mean of the features at the places of class c
    D_c(r)  = 1 − cos(feature of r, μ_c)                     in [0, 2]

`Prior` holds L sums and one count per rank, added over ranks when the mean is read. `Prototypes` holds L×D sums,
whatever the number of images; it is made and used within one pass, and not saved.
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
from tagfill.memory.base import Shard, Store, Total

FAR = 4.0  # the distance to a class without a prototype: larger than any other
_CLASSES_AT_ONCE = 256
_NO_IMAGES = torch.empty(0, dtype=torch.int64)  # the prior is not about single images


class Prior(Store):
    """The mean predicted probability of each class over all visits.

    Attributes:
        sums: L float64, sums of predicted probabilities on this rank.
        visits: the number of visits that they are over, on this rank.
    """

    sums: Tensor
    visits: Tensor

    def __init__(self, shard: Shard, width: int) -> None:
        super().__init__(shard, sums=Total((width,), torch.float64), visits=Total((), torch.int64))

    def update(self, probabilities: Tensor) -> None:
        """Count one more visit of some images, B×L."""
        self._write_soon(_NO_IMAGES, probabilities)

    def _write(self, index: Tensor, values: Tensor, *rest: object) -> None:
        self.sums += values.double().sum(0)
        self.visits += len(values)

    def clear(self) -> None:
        """Start from zero."""
        self.settle()
        self.sums.zero_()
        self.visits.zero_()

    def total_visits(self, ranks: Ranks) -> int:
        """Visits of all ranks; every rank has to call this."""
        self.settle()
        return int(ranks.sum(self.visits.clone()))

    def mean(self, ranks: Ranks) -> Tensor:
        """The mean probability of each class over the visits of all ranks, L float64; 0 without visits."""
        self.settle()
        return ranks.sum(self.sums.clone()) / max(self.total_visits(ranks), 1)


def read_prior(path: Path, classes: Sequence[str]) -> Tensor:
    """Read a prior from a CSV file with the columns `Classes` and `avg_pred`, in any order of rows.

    Args:
        path: the file.
        classes: names of the classes, in the order of the result.

    Returns:
        L float64.

    Raises:
        TagfillError: if the file cannot be read, or a class or a number is missing.
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
                f"Line {line} of the prior {path} has no class or no number; the columns are Classes and avg_pred."
            ) from None
    if missing := [name for name in classes if name not in found]:
        raise TagfillError(
            f"The prior {path} has no line for the class '{missing[0]}'; add one for each class of the dataset."
        )
    return torch.tensor([found[name] for name in classes], dtype=torch.float64)


class Prototypes:
    """Mean features of L classes over the places where they were seen.

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
        """L bool, the classes that have a prototype."""
        return self.counts > 0

    def add(self, features: Tensor, label: Tensor) -> None:
        """Add places, n×D, and the class that was seen at each."""
        self.sums.index_add_(0, label.cpu(), features.double().cpu())
        self.counts += torch.bincount(label.cpu(), minlength=len(self.counts))

    def share(self, ranks: Ranks) -> None:
        """Sum over all processes."""
        self.sums, self.counts = ranks.sum(self.sums), ranks.sum(self.counts)

    def means(self) -> Tensor:
        """μ, L×D float32; zero for a class without a place."""
        return (self.sums / self.counts.clamp(min=1)[:, None]).float()

    def nearest(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest distance over cells of each image and class, and the cell that has it.

        Args:
            features: B×D×H×W, or B×D as one cell.

        Returns:
            B×L distances, `FAR` for a class without a prototype; and B×L cells, counted row by row.
        """
        places = F.normalize(features.float().flatten(2) if features.ndim == 4 else features.float()[:, :, None], dim=1)
        means, known = F.normalize(self.means().to(places.device), dim=1), self.known.to(places.device)
        blocks = (means[at : at + _CLASSES_AT_ONCE] for at in range(0, len(means), _CLASSES_AT_ONCE))
        found = [torch.einsum("bdr,ld->blr", places, block).max(-1) for block in blocks]
        similarity, cell = (torch.cat([each[at] for each in found], dim=1) for at in (0, 1))
        return torch.where(known, 1 - similarity, FAR), cell
