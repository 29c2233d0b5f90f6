"""LL-R, LL-Ct and LL-Cp: unknown is absent, but the largest losses of a batch are rejected or corrected.

    k = ⌈B·L·ρ_t⌉,  τ = the k-th largest loss of the batch's unknown labels,  M = those with a loss of τ or more
    LL-R   M is left out of the loss                          ρ_t = (t−1)·Δ
    LL-Ct  M is read as present, in this step                 ρ_t = (t−1)·Δ
    LL-Cp  M is read as present, from this step on            ρ_t = Δ from the second epoch on

t counts the epochs of a stage from 1, so that the first is AN: a network learns clean labels before it memorises wrong
ones. The rate of LL-Cp stays constant because its changes add up. Losses and ranking are those of the logits as they
are, boosted ones where the head boosts.

A batch is what the loss sees: the images of this process, and of one part where a batch is worked off in parts.

Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022; with BoostLU: Kim et al.,
Bridging the Gap between Model Explanations in Partially Annotated Multi-label Classification, CVPR 2023. The first
code's LL-Cp compared strings by identity and never changed a label; here it does.
"""

from __future__ import annotations

from fractions import Fraction
from typing import get_args

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task
from tagfill.errors import TagfillError, one_of
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.large_loss import Candidates, Mode
from tagfill.methods.base import Scheduled


class LargeLoss(Scheduled):
    """What the three have in common; the rate changes with the epoch."""

    paper = "Kim et al., CVPR 2022"
    name: str
    mode: Mode

    def __init__(self, rate: float, candidates: Candidates) -> None:
        if not 0 < rate <= 100:
            raise TagfillError(f"options.{self.name}.rate is {rate:g}; it is in percent, above 0 and at most 100.")
        one_of(f"options.{self.name}.candidates", candidates, get_args(Candidates))
        self._step = Fraction(str(rate)) / 100
        self._candidates: Candidates = candidates
        self._large: tuple[Tensor, Tensor] | None = None

    def share(self) -> Fraction:
        """ρ_t, of all entries of a batch."""
        return (self._epoch - 1) * self._step

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Assume negative, except for the largest losses."""
        return {self.name: self._loss(batch.index, batch.labels, prediction.logits)}

    def _loss(self, index: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
        large = losses.large_losses(logits, labels, rate=self.share(), candidates=self._candidates)
        self._large = index, large
        return losses.assume_negative_except(logits, labels, large, mode=self.mode)

    def decisions(self) -> Decisions | None:
        """The largest losses of the last step."""
        if self._large is None:
            return None
        kind, value = ("rejected", UNKNOWN) if self.mode == "reject" else ("flipped", POSITIVE)
        return Decisions.of(*self._large, kind, value)


class Rejection(LargeLoss):
    """LL-R: the largest losses are left out.

    Args:
        rate: Δ in percent of all entries, added in each epoch.
        candidates: `unknown`, or `not_positive` for explicit negatives too.
    """

    name, mode = "ll-r", "reject"

    def __init__(self, *, rate: float = 0.5, candidates: Candidates = "unknown") -> None:
        super().__init__(rate, candidates)


class TemporaryCorrection(LargeLoss):
    """LL-Ct: the largest losses are read as present in this step.

    Args:
        rate: Δ in percent of all entries, added in each epoch.
        candidates: `unknown`, or `not_positive` for explicit negatives too.
    """

    name, mode = "ll-ct", "correct"

    def __init__(self, *, rate: float = 0.2, candidates: Candidates = "unknown") -> None:
        super().__init__(rate, candidates)


class PermanentCorrection(LargeLoss):
    """LL-Cp: the largest losses are read as present from now on.

    Args:
        rate: Δ in percent of all entries, changed in each epoch but the first.
        candidates: `unknown`, or `not_positive` for explicit negatives too.
        strict: keep only what lies above the threshold, without the entries at it, as the first code would have.
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
        """Nothing in the first epoch, then always the same."""
        return self._step if self._epoch > 1 else Fraction(0)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """As LL-Ct, on labels that earlier visits may have changed."""
        labels = self._changed.read(batch.index, batch.labels)
        return {self.name: self._loss(batch.index, labels, prediction.logits)}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Keep the corrections of this step; the image's next visit sees them."""
        if not self._memory.first_write("overlay"):
            return
        if self._strict:
            labels = self._changed.read(batch.index, batch.labels)
            rate, logits = self.share(), prediction.logits
            large = losses.large_losses(logits, labels, rate=rate, candidates=self._candidates, strict=True)
        else:
            assert self._large is not None
            large = self._large[1]
        self._changed.set(batch.index, large, POSITIVE)
