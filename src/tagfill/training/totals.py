"""Sums of the loss terms of an epoch so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tagfill.contract import Ranks


@dataclass
class Totals:
    """Sums over the images of this rank."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    images: int = 0

    def add(self, terms: dict[str, Tensor], images: int) -> None:
        """One more part of a batch."""
        for name, value in terms.items():
            total = self.sums.setdefault(name, torch.zeros((), dtype=torch.float64))
            total += value.detach().double().cpu() * images
        self.images += images

    def means(self, ranks: Ranks) -> dict[str, float]:
        """The mean of each term over the images of all ranks."""
        count = float(ranks.sum(torch.tensor(float(self.images), dtype=torch.float64)))
        return {name: float(ranks.sum(self.sums[name])) / max(count, 1.0) for name in sorted(self.sums)}

    def state_dict(self) -> dict[str, Tensor]:
        """As tensors."""
        return {**{f"sum.{name}": value for name, value in self.sums.items()}, "images": torch.tensor(self.images)}

    @classmethod
    def from_state(cls, state: dict[str, Tensor]) -> Totals:
        """Back from `state_dict`."""
        sums = {name.removeprefix("sum."): value for name, value in state.items() if name.startswith("sum.")}
        return cls(sums, int(state["images"]))
