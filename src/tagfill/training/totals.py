"""Sums of an epoch so far: of the loss terms, and of what the method decided about labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tagfill.contract import Decisions, Ranks


@dataclass
class Totals:
    """Sums over the images of this rank.

    Attributes:
        sums: of each loss term.
        images: that were visited.
        decisions: how many labels were decided in each way; None as long as no method has decided anything.
    """

    sums: dict[str, float] = field(default_factory=dict)
    images: int = 0
    decisions: Counter[str] | None = None

    def add(self, terms: Mapping[str, float], images: int) -> None:
        """One more part of a batch."""
        for name, value in terms.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * images
        self.images += images

    def decide(self, decided: Decisions | None) -> None:
        """What was decided about the labels of that part."""
        if decided is not None:
            self.decisions = self.decisions or Counter()
            self.decisions.update(decided.kind.tolist())

    def means(self, ranks: Ranks) -> dict[str, float]:
        """The mean of each term over the images of all ranks."""
        names = sorted(self.sums)
        own = torch.tensor([self.images, *(self.sums[name] for name in names)], dtype=torch.float64)
        count, *sums = ranks.sum(own).tolist()
        return {name: total / max(count, 1.0) for name, total in zip(names, sums, strict=True)}

    def state_dict(self) -> dict[str, Tensor]:
        """As tensors."""
        state = {f"sum.{name}": torch.tensor(value, dtype=torch.float64) for name, value in self.sums.items()}
        if self.decisions is not None:
            state |= {f"decided.{kind}": torch.tensor(count) for kind, count in {"": 0, **self.decisions}.items()}
        return {**state, "images": torch.tensor(self.images)}

    @classmethod
    def from_state(cls, state: dict[str, Tensor]) -> Totals:
        """Back from `state_dict`."""
        sums = {name.removeprefix("sum."): float(value) for name, value in state.items() if name.startswith("sum.")}
        decided = {name.removeprefix("decided."): int(n) for name, n in state.items() if name.startswith("decided.")}
        return cls(sums, int(state["images"]), +Counter(decided) if decided else None)


def add_up(decisions: list[dict[str, int] | None]) -> dict[str, int] | None:
    """The decisions of all ranks together, in alphabetical order; None if no rank has any.

    >>> add_up([{"rejected": 2}, None, {"flipped": 1, "rejected": 1}])
    {'flipped': 1, 'rejected': 3}
    """
    made = [Counter(part) for part in decisions if part is not None]
    return dict(sorted(sum(made, Counter()).items())) if made else None
