"""What a method is made of that changes with the epoch and remembers nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.methods.stateless import Stateless


class Scheduled(Stateless):
    """A method whose loss depends on the epoch, which a run that is resumed within one has to know."""

    _epoch = 1

    def begin_epoch(self, epoch: int) -> None:
        """Remember which one it is, from 1."""
        self._epoch = epoch

    def state_dict(self) -> dict[str, Tensor]:
        """The epoch."""
        return {"epoch": torch.tensor(self._epoch)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on in that epoch."""
        self._epoch = int(state["epoch"])
