"""LL-R, LL-Ct and LL-Cp: unknown is absent, but the largest losses of a batch are rejected or corrected.

    k = ⌈B·L·ρ_t⌉,  τ = the k-th largest loss of the batch's unknown labels,  M = those with a loss of τ or more
    LL-R   M is ignored                                       ρ_t = (t−1)·Δ
    LL-Ct  M is present, in this step                         ρ_t = (t−1)·Δ
    LL-Cp  M is present, from this step on                    ρ_t = Δ from the second epoch on

t counts the epochs of a stage from 1, so that the first is AN: a network learns clean labels before it memorizes wrong
ones. The rate of LL-Cp is constant because its changes accumulate. Losses are those of the logits, boosted where the
head boosts. A batch is what the loss sees: one micro-batch of one process.

Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022; with BoostLU: Kim et al.,
Bridging the Gap between Model Explanations in Partially Annotated Multi-label Classification, CVPR 2023. The first
code's LL-Cp compared strings by identity and never changed a label; here it does.
"""

from __future__ import annotations

from fractions import Fraction

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.large_loss import Candidates, Mode
from tagfill.methods.base import Scheduled


class LargeLoss(Scheduled):
    """The common part of the three; the rate depends on the epoch."""

    paper = "Kim et al., CVPR 2022"
    name: str
    mode: Mode

    def __init__(self, rate: float, candidates: Candidates) -> None:
        if not 0 < rate <= 100:
            raise TagfillError(f"options.{self.name}.rate is {rate:g}; it is in percent, above 0 and at most 100.")
        self._step = Fraction(str(rate)) / 100
        self._candidates: Candidates = candidates
        self._large: tuple[Tensor, Tensor] | None = None

    def first_epoch(self, epochs: int) -> int:
        """The second: the first is AN."""
        return 2

    def share(self) -> Fraction:
        """ρ_t, the share of all entries of a batch."""
        return (self._epoch - 1) * self._step

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Assume negative, except for the largest losses."""
        return {self.name: self._loss(batch.index, batch.labels, prediction.logits)}

    def _loss(self, index: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
        large = losses.large_loss_mask(logits, labels, rate=self.share(), candidates=self._candidates)
        self._large = index, large
        return losses.large_loss_from_mask(logits, labels, large, mode=self.mode)

    def decisions(self) -> Decisions | None:
        """The largest losses of the last step."""
        if self._large is None:
            return None
        kind, value = ("rejected", UNKNOWN) if self.mode == "reject" else ("flipped", POSITIVE)
        return Decisions.of(*self._large, kind, value)


class Rejection(LargeLoss):
    """LL-R: the largest losses are ignored.

    Args:
        rate: Δ in percent of all entries, added in each epoch.
        candidates: `unknown`, or `not_positive` to include explicit negatives.
    """

    name, mode = "ll-r", "reject"

    def __init__(self, *, rate: float = 0.5, candidates: Candidates = "unknown") -> None:
        super().__init__(rate, candidates)


class TemporaryCorrection(LargeLoss):
    """LL-Ct: the labels with the largest losses are present in this step.

    Args:
        rate: Δ in percent of all entries, added in each epoch.
        candidates: `unknown`, or `not_positive` to include explicit negatives.
    """

    name, mode = "ll-ct", "correct"

    def __init__(self, *, rate: float = 0.2, candidates: Candidates = "unknown") -> None:
        super().__init__(rate, candidates)


class PermanentCorrection(LargeLoss):
    """LL-Cp: the labels with the largest losses are present from then on.

    Args:
        rate: Δ in percent of all entries, in each epoch except the first.
        candidates: `unknown`, or `not_positive` to include explicit negatives.
        strict: change only losses above the threshold, not those equal to it, as the first code intended.
    """

    name, mode = "ll-cp", "correct"
    needs = frozenset({"memory"})

    def __init__(self, *, rate: float = 0.1, candidates: Candidates = "unknown", strict: bool = False) -> None:
        super().__init__(rate, candidates)
        self._strict = strict

    def setup(self, task: Task) -> None:
        """Ask for the changed labels."""
        changes = (task.epochs - 1) * self._step * len(task.shard) * len(task.classes)
        self._memory = task.memory
        self._changed = task.memory.overlay(changes=float(changes))

    def share(self) -> Fraction:
        """Zero in the first epoch, then constant."""
        return self._step if self._epoch > 1 else Fraction(0)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """The loss of LL-Ct, on labels that earlier visits may have changed."""
        labels = upload(self._changed.read(batch.index, batch.labels_on_host), prediction.logits.device)
        return {self.name: self._loss(batch.index, labels, prediction.logits)}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Store the corrections of this step for the next visit of the image."""
        if not self._memory.first_write("overlay"):
            return
        if self._strict:
            rate, logits = self.share(), prediction.logits
            labels = upload(self._changed.read(batch.index, batch.labels_on_host), logits.device)
            large = losses.large_loss_mask(logits, labels, rate=rate, candidates=self._candidates, strict=True)
        else:
            assert self._large is not None
            large = self._large[1]
        self._changed.set(batch.index, large, POSITIVE)
