"""P-ASL and CSL: unknown labels have their own focusing strength, and likely positives among them are ignored.

    L = −Σ ω α (1−p)^γ log p          p = f on positives, q = min(1−f+clip, 1) on the rest; γ by label state

    P-ASL  ω = 0 on all unknowns (`ignore`), or on none (`negative`)
    CSL    ω = 0 on unknowns of classes with prior_i > η, and on the K·B unknowns of the batch with the largest f

The two conditions of CSL are independent: an entry that the prior excludes still takes one of the K·B places, which are
shared by all images and classes of the batch. B is the batch that the loss sees: one micro-batch of one process.

The prior of a class is its mean predicted probability under a helper that was trained with P-ASL ignoring all unknowns.
It comes from the memory of an earlier stage; if there is none, CSL starts with some epochs as its own helper. The prior
of a class without both known positives and known negatives carries no information (without negatives, a class is
predicted everywhere), so such a class is selected by likelihood alone.

Ben-Baruch et al., Multi-label Classification with Partial Annotations using Class-aware Selective Loss, CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import UNKNOWN
from tagfill.losses.selective import Mode
from tagfill.memory import Prior, read_prior
from tagfill.methods.base import BaseMethod, by_label_state


def likely_positives(logits: Tensor, candidates: Tensor, places: int | Tensor, frequent: Tensor | None) -> Tensor:
    """The unknown labels that CSL ignores: those of frequent classes, and the likeliest of all.

    Args:
        logits: B×L.
        candidates: B×L bool, the unknown labels that can be ignored.
        places: number of the likeliest candidates to ignore, including those of frequent classes; also as a tensor.
        frequent: L bool, classes whose prior is above the threshold; None ignores by likelihood alone.

    Returns:
        B×L bool.
    """
    likely = losses.top_k_mask(logits.flatten(), candidates.flatten(), places).view_as(candidates)
    return likely if frequent is None else likely | (candidates & upload(frequent, candidates.device))


def estimated_prior(task: Task) -> Tensor:
    """The prior that an earlier stage estimated, L float64; 0 for a class without known positives or negatives."""
    informative = torch.from_numpy((task.labels.positives > 0) & (task.labels.negatives > 0))
    return task.memory.prior().mean(task.ranks).masked_fill(~informative, 0.0)


class PartialAsymmetric(BaseMethod):
    """P-ASL: unknown labels are ignored, or absent with less weight.

    If it ignores them, it also estimates the prior of each class, for `csl`.

    Args:
        mode: `ignore` ignores unknowns, `ignore_normalized` also gives images with few known labels more weight,
            `negative` treats unknowns as absent.
        gammas: γ of positives, negatives and unknowns.
        clip: added to the probability of absence, so that easy negatives cost nothing.
        eps: smallest probability inside a logarithm, 1e-8 as published; 0 is exact.
    """

    needs = frozenset({"memory"})
    paper = "Ben-Baruch et al., CVPR 2022"

    def __init__(
        self,
        *,
        mode: Mode = "ignore",
        gammas: Sequence[float] = (0.0, 1.0, 2.0),
        clip: float = 0.0,
        eps: float = 0.0,
    ) -> None:
        self._mode = mode
        self._gammas, self._clip, self._eps = by_label_state("options.p-asl.gammas", gammas), clip, eps

    def setup(self, task: Task) -> None:
        """Ask for the prior, unless unknowns are treated as absent, which would make it meaningless."""
        self._memory = task.memory
        self._prior = None if self._mode == "negative" else task.memory.prior()

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """One term, summed over the batch as published."""
        value = losses.selective(
            prediction.logits,
            batch.labels,
            gammas=self._gammas,
            clip=self._clip,
            mode=self._mode,
            reduction="sum",
            eps=self._eps,
        )
        return {"p-asl": value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Count the predictions."""
        if self._prior is not None and self._memory.first_write("prior"):
            self._prior.update(prediction.logits.sigmoid())


class ClassAwareSelective(BaseMethod):
    """CSL: unknown labels are absent with less weight, but likely positives among them are ignored.

    Args:
        gammas: γ of positives, negatives and unknowns.
        clip: added to the probability of absence, so that easy negatives cost nothing.
        likely: K, unknowns to ignore for their likelihood, per image on average.
        threshold: η; unknowns of classes with a larger prior are ignored.
        prior: `estimate`, `none` for likelihood alone, or a CSV file with the columns Classes and avg_pred.
        prior_epochs: epochs in which this stage estimates the prior if no earlier stage did; null is a fifth of the
            stage, at least one.
        eps: smallest probability inside a logarithm, 1e-8 as published; 0 is exact.
    """

    needs = frozenset({"memory", "prior"})
    paper = "Ben-Baruch et al., CVPR 2022"

    def __init__(
        self,
        *,
        gammas: Sequence[float] = (0.0, 1.0, 2.0),
        clip: float = 0.0,
        likely: int = 5,
        threshold: float = 0.05,
        prior: str = "estimate",
        prior_epochs: int | None = None,
        eps: float = 0.0,
    ) -> None:
        self._gammas, self._clip, self._eps = by_label_state("options.csl.gammas", gammas), clip, eps
        self._likely, self._threshold = likely, threshold
        self._prior_option, self._prior_epochs = prior, prior_epochs
        self._epoch, self._helper_epochs = 1, 0
        self._ignored: tuple[Tensor, Tensor] | None = None

    def setup(self, task: Task) -> None:
        """Find the prior, or decide how long to estimate it."""
        self._task = task
        self._prior: Tensor | None = torch.zeros(len(task.classes), dtype=torch.float64)
        self._store: Prior | None = None
        if self._prior_option == "estimate":
            self._store = task.memory.prior()
            estimated = self._store.total_visits(task.ranks) > 0
            informative = bool(((task.labels.positives > 0) & (task.labels.negatives > 0)).any())
            self._helper_epochs = self._choose_helper_epochs() if not estimated and informative else 0
        elif self._prior_option != "none":
            self._prior = None  # read at the first epoch; a resumed run has it in its checkpoint

    def _choose_helper_epochs(self) -> int:
        """Epochs in which this stage is its own helper."""
        epochs, asked = self._task.epochs, self._prior_epochs
        if asked == 0:
            raise TagfillError(
                "The method 'csl' has no prior: train a stage with p-asl before it and start with memory: last, set "
                "options.csl.prior to a CSV file or 'none', or set options.csl.prior_epochs above 0."
            )
        if asked is not None and not 0 < asked < epochs:
            raise TagfillError(
                f"options.csl.prior_epochs is {asked}; at least one of the stage's {epochs} epochs has to be left for "
                "learning with the prior."
            )
        return asked if asked is not None else min(max(1, epochs // 5), epochs - 1)

    def begin_epoch(self, epoch: int) -> None:
        """Restart the estimate while the stage is its own helper, and use the last one after that."""
        self._epoch = epoch
        if self._store is not None and self._helping:
            self._store.clear()
        elif self._store is not None:
            self._prior = estimated_prior(self._task)
        elif self._prior is None:
            self._prior = read_prior(Path(self._prior_option), self._task.classes)

    @property
    def _helping(self) -> bool:
        return self._epoch <= self._helper_epochs

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """One term, summed over the batch as published; as its own helper, the term of P-ASL."""
        logits, labels = prediction.logits, batch.labels
        ignore = None
        if not self._helping:
            assert self._prior is not None
            ignore = likely_positives(
                logits, labels == UNKNOWN, self._likely * len(labels), self._prior > self._threshold
            )
        self._ignored = None if ignore is None else (batch.index, ignore)
        value = losses.selective(
            logits,
            labels,
            gammas=self._gammas,
            clip=self._clip,
            ignore=ignore,
            mode="ignore" if self._helping else "negative",
            reduction="sum",
            eps=self._eps,
        )
        return {"p-asl" if self._helping else "csl": value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Count the predictions of the helper."""
        if self._helping and self._store is not None and self._task.memory.first_write("prior"):
            self._store.update(prediction.logits.sigmoid())

    def decisions(self) -> Decisions | None:
        """The unknowns that the last step ignored; the helper ignores all and decides nothing."""
        return None if self._ignored is None else Decisions.of(*self._ignored, "ignored", UNKNOWN)

    def state_dict(self) -> dict[str, Tensor]:
        """The epoch and the prior, for a run that resumes within an epoch."""
        state = {"epoch": torch.tensor(self._epoch), "helper_epochs": torch.tensor(self._helper_epochs)}
        return state if self._prior is None else {**state, "prior": self._prior}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from there."""
        self._epoch, self._helper_epochs = int(state["epoch"]), int(state["helper_epochs"])
        if "prior" in state:
            self._prior = state["prior"].clone()
