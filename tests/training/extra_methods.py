"""`tagfill` with another method, as a script, so that processes that it launches know it too.

Usage: python extra_methods.py train DATASET --method rejecting …
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill import methods
from tagfill.cli import main
from tagfill.contract import Batch, Decisions, Prediction
from tagfill.methods import BaseMethod

SPOILT, SPOILT_IN = 7, 3  # position of the image whose loss is not a number, and from which epoch on


class Rejecting(BaseMethod):
    """Rejects the unknown labels of the first class, and flips those of the second in every third image.

    From the third epoch on, one image has a loss that is not a number.
    """

    def begin_epoch(self, epoch: int) -> None:
        self._spoils = epoch >= SPOILT_IN

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        unknown = batch.labels < 0
        rejected, flipped = torch.zeros_like(unknown), torch.zeros_like(unknown)
        rejected[:, 0] = unknown[:, 0]
        flipped[:, 1] = unknown[:, 1] & (batch.index % 3 == 0)
        self._made = Decisions.join(
            [
                Decisions.of(batch.index, rejected, "rejected", -1),
                Decisions.of(batch.index, flipped, "flipped", 1),
            ]
        )
        bad = torch.nan if self._spoils and (batch.index == SPOILT).any() else 1.0
        return {"good": prediction.logits.square().mean(), "bad": bad * prediction.logits.mean()}

    def decisions(self) -> Decisions | None:
        return self._made


if __name__ == "__main__":
    methods.METHODS["rejecting"] = Rejecting
    main()
