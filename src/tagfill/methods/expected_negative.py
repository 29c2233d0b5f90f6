"""EN: leave out the most likely unannotated positives of each class, and use all other unknowns as negatives.

    p_i   = K · #{n : z_ni = 1}                     expected positives of class i in the training set
    s⁰    = 1[z=1],  sᵗ = μ sᵗ⁻¹ + (1−μ) fᵗ         running scores
    ẑ_·i  = 1 for the p_i images with the largest s_ni at the start of an epoch; in the first, ẑ = 1[z=1]
    L_EN  = mean( 1[z=1] ℓ⁺ + 1[ẑ=0] ℓ⁻ )
    L_EP  = mean( 1[z=1 or ẑ=1] ℓ⁺ + 1[ẑ=0] ℓ⁻ )   the ablation that believes ẑ

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.

Choices where the paper is silent. An annotated positive that drops out of the best p_i is not penalised as a negative,
unless `literal`. p_i is rounded half up and at most the number of images. The loss while only the head is warmed up is
AN, during which scores are kept (`warmup`); the first epoch after it is AN too, unless `use_warmup_scores`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import POSITIVE, UNKNOWN, Batch, Decisions, Prediction, Task
from tagfill.methods.expecting import expected_positives
from tagfill.methods.stateless import Stateless

_RANKED = 1 << 26  # scores that are ranked together


class ExpectedNegative(Stateless):
    """Expected negatives.

    Args:
        expected: K, true labels per image; None takes the task's estimate.
        momentum: μ of the running scores.
        literal: penalise an annotated positive outside the best p_i, as printed.
        warmup: assume negatives in every epoch of this stage, and only keep scores for the next one.
        use_warmup_scores: in the first epoch, choose by the scores that an earlier stage left.
        classes_per_image: keep the scores of so many classes an image; None keeps all.
    """

    name = "en"
    also_positive = False
    needs = frozenset({"memory", "expected_positives"})
    paper = "Verelst et al., WACV 2023"

    def __init__(
        self,
        *,
        expected: float | None = None,
        momentum: float = 0.8,
        literal: bool = False,
        warmup: bool = False,
        use_warmup_scores: bool = False,
        classes_per_image: int | None = None,
    ) -> None:
        self._expected = expected
        self._momentum = momentum
        self._literal = literal
        self._warmup, self._use_warmup_scores = warmup, use_warmup_scores
        self._classes_per_image = classes_per_image
        self._last: tuple[Tensor, Tensor] | None = None

    def setup(self, task: Task) -> None:
        """Count the expected positives and ask for scores and for the set of likely positives."""
        expected = expected_positives(self.name, self._expected, task)
        self._task = task
        observed = torch.from_numpy(task.labels.positives)
        self.counts = (observed.double() * expected + 0.5).floor().long().clamp(max=task.size)
        most = int(torch.maximum(self.counts, observed).sum())
        self._scores = task.memory.scores(momentum=self._momentum, classes_per_image=self._classes_per_image)
        self._likely = task.memory.entries("expected_positives", most=most)

    def begin_epoch(self, epoch: int) -> None:
        """Choose the likely positives anew once there are scores to choose by; before, as in AN, the observed ones."""
        carried = self._use_warmup_scores and self._scores.visited
        if self._warmup or not (epoch > 1 or carried):
            self._likely.replace_by_positives(self._task.labels)
            return
        self._likely.replace_by_columns(self._likeliest())

    def _likeliest(self) -> Iterator[tuple[int, Tensor]]:
        """ẑ of this rank's images, some classes at a time: the first of them, and n×c."""
        index, width = torch.from_numpy(self._task.shard), len(self.counts)
        step = max(1, _RANKED // max(self._task.size, 1))
        for start in range(0, width, step):
            values, kept = self._scores.columns(start, min(start + step, width))
            best = self._task.ranks.top_per_class(values, index, self.counts[start : start + step])
            yield start, best if kept is None else best & kept

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Positives, and negatives that are not likely positives."""
        likely = self._likely.read(batch.index)
        self._last = batch.index, likely & (batch.labels.cpu() == UNKNOWN)
        value = losses.expected_negative(
            prediction.logits,
            batch.labels,
            likely.to(prediction.logits.device),
            also_positive=self.also_positive,
            literal=self._literal,
        )
        return {self.name: value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the running scores."""
        if self._task.memory.first_write("scores"):
            self._scores.update(batch.index, prediction.logits.sigmoid())

    def decisions(self) -> Decisions | None:
        """The likely positives of the last step: left out, or believed."""
        if self._last is None:
            return None
        kind, value = ("pseudo-labelled", POSITIVE) if self.also_positive else ("ignored", UNKNOWN)
        return Decisions.of(*self._last, kind, value)


class ExpectedPositive(ExpectedNegative):
    """Expected positives, the ablation of EN that reads them as present; its options are those of `en`."""

    name = "ep"
    also_positive = True
