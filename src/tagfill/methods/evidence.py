"""Methods that learn from evidence of other taggers: VLPL, and one that trusts it as far as known labels confirm it.

**VLPL** turns the scores of a vision-language model into pseudo-labels: a softmax over the classes of an image, and a
threshold. On top of EM (`losses.entropy_maximization`),

    z = 1                          ℓ⁺
    unknown, softmax(x/T) ≥ θ      β·(0.9·ℓ⁺ + 0.1·ℓ⁻)
    any other                      −α·H(f)

Xing et al., Vision-Language Pseudo-Labels for Single-Positive Multi-Label Learning, CVPR Workshops 2024: T = 0.01,
θ = 0.3, β = 0.7, no negative pseudo-labels, α = 0.2 on VOC, 0.1 on COCO and NUS-WIDE, 0.01 on CUB. The published
code scores the augmented view of a step; here the scores are those of the whole image. A known absent label costs ℓ⁻.

**evidence** is ours. A softmax lets one class exclude the others, a threshold throws away how sure the tagger is, and
classes of which it knows nothing are treated like those that it knows best. Instead, the debiased probability p of a
pair (`tagfill.evidence.debias`) is the share of it that counts as present, and each class is trusted as far as the
evidence ranks its known tags above its other images (τ, `tagfill.evidence.class_trust`):

    unknown    β·t·ℓ⁺ + (1 − t)·(γ·ℓ⁻ − α·H(f)),   t = τ_c·p

The rest of a label is undecided, as in EM, and weakly absent. A pair without a score has t = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, TaggerEvidence, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.methods.base import BaseMethod, check_evidence, evidence_state


class _FromEvidence(BaseMethod):
    """A method that asks for evidence, and refuses to go on with other evidence than it began with."""

    needs = frozenset({"evidence"})

    def __init__(self, evidence: str | Sequence[str] | None) -> None:
        self._names = [evidence] if isinstance(evidence, str) else evidence
        self._evidence: TaggerEvidence | None = None

    def setup(self, task: Task) -> None:
        """Read the evidence; raises if there is none."""
        self._evidence = task.evidence(self._names)

    @property
    def _opened(self) -> TaggerEvidence:
        assert self._evidence is not None
        return self._evidence

    def state_dict(self) -> dict[str, Tensor]:
        """What tells this evidence from other evidence."""
        return evidence_state(self._opened)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Raise if the evidence is not that of the checkpoint."""
        check_evidence(self._opened, state)


class VisionLanguagePseudoLabels(_FromEvidence):
    """VLPL: unknown labels with a high score of another tagger are present, the others undecided.

    Args:
        evidence: its name, or several; null is all that the dataset has.
        alpha: α, the weight of the entropy of undecided labels.
        beta: β, the weight of a pseudo-label.
        smoothing: 0.1 of a pseudo-label counts as absent.
        threshold: θ, of the softmax over the classes of an image.
        temperature: T, by which cosines are divided.
        warmup: epochs of EM before pseudo-labels are used.
        eps: added to probabilities inside logarithms; 1e-5 in the released code.
    """

    paper = "Xing et al., CVPR Workshops 2024"

    def __init__(
        self,
        *,
        evidence: str | list[str] | None = None,
        alpha: float = 0.2,
        beta: float = 0.7,
        smoothing: float = 0.1,
        threshold: float = 0.3,
        temperature: float = 0.01,
        warmup: int = 0,
        eps: float = 0.0,
    ) -> None:
        super().__init__(evidence)
        if temperature <= 0 or not 0 <= smoothing < 1:
            raise TagfillError(
                f"The method 'vlpl' needs a temperature above 0 and a smoothing below 1; they are {temperature} and "
                f"{smoothing}."
            )
        self._alpha, self._beta, self._soft, self._eps = alpha, beta, 1 - smoothing, eps
        self._threshold, self._temperature, self._warmup = threshold, temperature, warmup
        self._epoch = 1
        self._last: tuple[Tensor, Tensor] | None = None

    def first_epoch(self, epochs: int) -> int:
        """The first epoch with pseudo-labels."""
        return self._warmup + 1

    def begin_epoch(self, epoch: int) -> None:
        """Remember the epoch, for the warm-up."""
        self._epoch = epoch

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """EM with soft positives where the tagger is sure."""
        labels = batch.labels
        chosen = torch.zeros_like(labels, dtype=torch.bool)
        if self._epoch > self._warmup:
            score = self._opened.softmax(batch.index.cpu().numpy(), self._temperature)
            sure = torch.from_numpy(np.nan_to_num(score) >= self._threshold)
            chosen = upload(sure, labels.device) & (labels == UNKNOWN)
        self._last = batch.index, chosen
        value = losses.entropy_maximization(
            prediction.logits,
            labels,
            alpha=self._alpha,
            soft_labels=torch.where(chosen, self._soft, -1.0),
            soft_weight=self._beta,
            use_negatives=True,
            eps=self._eps,
        )
        return {"vlpl": value}

    def decisions(self) -> Decisions | None:
        """The pseudo-labels of the last step."""
        return None if self._last is None else Decisions.of(*self._last, "pseudo-labelled", POSITIVE)

    def state_dict(self) -> dict[str, Tensor]:
        """The epoch, and what tells this evidence from other evidence."""
        return {**super().state_dict(), "epoch": torch.tensor(self._epoch)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue in that epoch."""
        super().load_state_dict(state)
        self._epoch = int(state["epoch"])


class TrustedEvidence(_FromEvidence):
    """Soft positives from debiased evidence, trusted class by class as far as known labels confirm it.

    Args:
        evidence: its name, or several; null is all that the dataset has.
        alpha: α, the weight of the entropy of what is not present.
        beta: β, the weight of the share that counts as present.
        gamma: γ, the weight of the rest as absent.
        trust: factor of the trust of every class, from 0 to 1.
        eps: added to probabilities inside logarithms.
    """

    paper = "Tagfill, unpublished"

    def __init__(
        self,
        *,
        evidence: str | list[str] | None = None,
        alpha: float = 0.1,
        beta: float = 0.7,
        gamma: float = 0.1,
        trust: float = 1.0,
        eps: float = 0.0,
    ) -> None:
        super().__init__(evidence)
        if not 0 <= trust <= 1:
            raise TagfillError(f"The method 'evidence' needs a trust between 0 and 1; it is {trust}.")
        self._weights: dict[str, Any] = {"weight": beta, "negative_weight": gamma, "alpha": alpha, "eps": eps}
        self._factor = trust

    def setup(self, task: Task) -> None:
        """Read the evidence and debias it with the known labels."""
        super().setup(task)
        self._trust = torch.from_numpy(self._factor * self._opened.trust).float()

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Known labels, the trusted share of unknown ones, and the entropy of the rest."""
        labels = batch.labels
        probability = self._opened.probabilities(batch.index.cpu().numpy(), batch.labels_on_host.numpy())
        share = upload(self._trust * torch.from_numpy(np.nan_to_num(probability)), labels.device)
        return {"evidence": losses.soft_positive(prediction.logits, labels, share, **self._weights)}
