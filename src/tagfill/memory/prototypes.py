"""What a class looks like to the network: the mean feature of all places where it was seen.

    μ_c = mean of the features at the places of class c
    D_c(r) = 1 − cos(feature of r, μ_c)                      in [0, 2]

L×D sums, whatever the number of images; distances are taken a block of classes at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tagfill.contract import Ranks

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
