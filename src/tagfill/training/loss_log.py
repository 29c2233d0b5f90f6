"""The losses of an epoch: they stay on the device, are read together every few steps, and are summed.

Reading one number from an accelerator waits for everything that was started before it. The loop therefore leaves the
loss terms of each micro-batch where they are and reads those of `READ_EVERY` steps with one copy. Each remembers its
step and its images, so that a loss that is not finite is still named; nothing is saved before all losses were read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tagfill.contract import Decisions, Ranks

READ_EVERY = 32  # steps


@dataclass(slots=True)
class PendingLoss:
    """Numbers of one micro-batch that were not read yet.

    Attributes:
        step: within the epoch, from 0.
        share: of the micro-batch in its step.
        images: positions in the training set.
        names: of the loss terms; None for the norm of all gradients of a step.
        values: one number for each name, or one norm.
    """

    step: int
    share: float
    images: Tensor
    names: tuple[str, ...] | None
    values: Tensor


@dataclass(slots=True)
class ReadLoss:
    """The same with its terms as numbers, by name."""

    step: int
    share: float
    images: Tensor
    is_norm: bool
    terms: dict[str, float]

    @property
    def not_finite(self) -> str | None:
        """The name of the first term that is not finite."""
        return next((name for name, value in self.terms.items() if not math.isfinite(value)), None)


def read_losses(pending: list[PendingLoss]) -> list[ReadLoss]:
    """Read the numbers of many micro-batches, with one copy from the device; empties the list.

    >>> pending = [PendingLoss(0, 1.0, torch.tensor([7]), ("an",), torch.tensor(0.5))]
    >>> [loss.terms for loss in read_losses(pending)], pending
    ([{'an': 0.5}], [])
    """
    if not pending:
        return []
    values = iter(torch.cat([loss.values.reshape(-1) for loss in pending]).tolist())
    read = [
        ReadLoss(
            loss.step,
            loss.share,
            loss.images,
            loss.names is None,
            {name: next(values) for name in loss.names or ("norm",)},
        )
        for loss in pending
    ]
    pending.clear()
    return read


@dataclass
class Totals:
    """Sums of an epoch over the images of this rank.

    Attributes:
        sums: of each loss term, weighted by images.
        images: that were visited.
        decisions: how many labels were decided in each way, as numbers on the device; None while no method has
            decided anything.
    """

    sums: dict[str, float] = field(default_factory=dict)
    images: int = 0
    decisions: dict[str, Tensor | int] | None = None

    def add(self, terms: Mapping[str, float], images: int) -> None:
        """Add a micro-batch: its mean loss terms, and its images."""
        for name, value in terms.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * images
        self.images += images

    def add_decisions(self, decisions: Decisions) -> None:
        """Add what was decided about the labels of a micro-batch."""
        self.decisions = self.decisions or {}
        for kind, count in decisions.counts().items():
            self.decisions[kind] = self.decisions.get(kind, 0) + count

    def decided(self) -> dict[str, int] | None:
        """How many labels were decided in each way, where any were."""
        if self.decisions is None:
            return None
        return {kind: int(count) for kind, count in self.decisions.items() if int(count)}

    def means(self, ranks: Ranks) -> dict[str, float]:
        """The mean of each term over the images of all ranks."""
        names = sorted(self.sums)
        own = torch.tensor([self.images, *(self.sums[name] for name in names)], dtype=torch.float64)
        count, *sums = ranks.sum(own).tolist()
        return {name: total / max(count, 1.0) for name, total in zip(names, sums, strict=True)}

    def state_dict(self) -> dict[str, Tensor]:
        """The sums as tensors."""
        state = {f"sum.{name}": torch.tensor(value, dtype=torch.float64) for name, value in self.sums.items()}
        if (decided := self.decided()) is not None:
            state |= {f"decided.{kind}": torch.tensor(count) for kind, count in {"": 0, **decided}.items()}
        return {**state, "images": torch.tensor(self.images)}

    @classmethod
    def from_state(cls, state: dict[str, Tensor]) -> Totals:
        """The inverse of `state_dict`."""
        sums = {name.removeprefix("sum."): float(value) for name, value in state.items() if name.startswith("sum.")}
        decided = {name.removeprefix("decided."): int(n) for name, n in state.items() if name.startswith("decided.")}
        found: dict[str, Tensor | int] = {kind: count for kind, count in decided.items() if count}
        return cls(sums, int(state["images"]), found if decided else None)


def merge_counts(counts: list[dict[str, int] | None]) -> dict[str, int] | None:
    """The sum of all ranks' counts, in alphabetical order; None if no rank has any.

    >>> merge_counts([{"rejected": 2}, None, {"flipped": 1, "rejected": 1}])
    {'flipped': 1, 'rejected': 3}
    """
    made = [Counter(count) for count in counts if count is not None]
    return dict(sorted(sum(made, Counter()).items())) if made else None
