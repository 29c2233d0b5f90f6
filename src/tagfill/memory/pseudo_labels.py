"""Labels that a method gave by itself: a probability for each entry that it labelled, nothing for the others.

Kept as an n×L table in half precision, with -1 for nothing. A method that labels by itself ends with a label for most
entries (nine tenths of the unknown ones in EM+APL), and a list of keys and values would then be five times as large.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tagfill.contract import LabelMatrix
from tagfill.memory.shard import SavedPart, Shard

NOTHING = -1.0


class PseudoLabels:
    """Soft or hard labels, one row an image of this rank."""

    def __init__(self, labels: LabelMatrix, shard: Shard) -> None:
        self._shard = shard
        self.values = torch.full((len(shard), labels.width), NOTHING, dtype=torch.float16)

    @staticmethod
    def bytes(labels: LabelMatrix, shard: Shard) -> int:
        """What the table of a shard takes."""
        return 2 * len(shard) * labels.width

    @property
    def given(self) -> Tensor:
        """n×L bool, which entries have a label, in the order of the shard."""
        return self.values >= 0

    def clear(self) -> None:
        """Forget all labels."""
        self.values.fill_(NOTHING)

    def give(self, mask: Tensor, values: Tensor | float) -> None:
        """Label the entries of an n×L mask over this rank's images, each with its value, or all with one."""
        if isinstance(values, Tensor):
            self.values[mask] = values[mask].to(self.values.dtype)
        else:
            self.values[mask] = values

    def read(self, index: Tensor) -> Tensor:
        """The labels of these images, B×L float32; -1 where there is none."""
        return self.values[torch.from_numpy(self._shard.rows(index))].float()

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""
        self.load_state_dict({"values": self._shard.collect(parts, "values")})

    def state_dict(self) -> dict[str, Tensor]:
        """The whole table."""
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back a saved table."""
        self.values.copy_(state["values"])
