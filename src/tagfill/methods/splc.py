"""SPLC: from the second epoch on, unknown labels with confident predictions are treated as present.

    s = g − m where z=1, else g;   t = 1 where z=1, or where z is unknown and σ(s) > τ
    L = Σ (1−p_t)^γ H(s; t)

A correction lasts for one step. The sum is over the batch, as published.

Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels, 2021.
"""

from __future__ import annotations

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction
from tagfill.labels import POSITIVE
from tagfill.methods.base import Scheduled


class Splc(Scheduled):
    """SPLC: unknown labels are absent, except those with confident predictions, which are present in this step.

    Args:
        threshold: τ, the probability above which an unknown label is treated as present.
        margin: m, subtracted from the logits of observed positives.
        gamma: γ, the focusing strength.
        warmup: epochs before the first correction.
    """

    paper = "Zhang et al., arXiv:2112.07368"

    def __init__(self, *, threshold: float = 0.6, margin: float = 1.0, gamma: float = 2.0, warmup: int = 1) -> None:
        self._threshold, self._margin, self._gamma = threshold, margin, gamma
        self._warmup = warmup
        self._corrected: tuple[Tensor, Tensor] | None = None

    def first_epoch(self, epochs: int) -> int:
        """The epoch of the first corrections."""
        return self._warmup + 1

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """One term, summed over the batch."""
        logits, labels, correct = prediction.logits, batch.labels, self._epoch > self._warmup
        sure = losses.confident_unknowns(logits, labels, threshold=self._threshold) & correct
        self._corrected = batch.index, sure
        value = losses.splc(
            logits,
            labels,
            correct=correct,
            threshold=self._threshold,
            margin=self._margin,
            gamma=self._gamma,
            reduction="sum",
        )
        return {"splc": value}

    def decisions(self) -> Decisions | None:
        """The unknown labels that the last step treated as present."""
        return None if self._corrected is None else Decisions.of(*self._corrected, "flipped", POSITIVE)
