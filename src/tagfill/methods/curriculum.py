"""Curriculum labeling: train on known labels, then add the model's most confident predictions as labels, and repeat.

    train   L = wNE over z̃                       images with few known labels get more weight
    label   z̃ = z where known;  1 where f ≥ θ⁺;  0 where f ≤ θ⁻;  unknown elsewhere

Pseudo-labels are made again each time from the current model, so that one that it no longer supports is removed. A
pseudo-label counts as known in the weight of its image.

Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels, CVPR 2019, add labels by
score among other strategies. Our choices: thresholds on probabilities, 0.9 and 0.1, and a pass after each epoch. Like
every method that ignores unknown labels, it needs some negatives to start with: from positives alone it learns to
predict every class everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.methods.base import BaseMethod, pseudo_label_decisions, training_scores


class Curriculum(BaseMethod):
    """Confident predictions are used as labels, and updated every few epochs.

    Args:
        present_above: θ⁺, the probability from which an unknown label becomes present; 1.01 adds none.
        absent_below: θ⁻, the probability up to which it becomes absent; -0.01 adds none.
        every: epochs between two passes over the training images.
    """

    needs = frozenset({"memory"})
    paper = "Durand et al., CVPR 2019"

    def __init__(self, *, present_above: float = 0.9, absent_below: float = 0.1, every: int = 1) -> None:
        if present_above <= absent_below:
            raise TagfillError(
                f"The thresholds of curriculum are present_above={present_above} and absent_below={absent_below}; the "
                "first must be larger."
            )
        if every < 1:
            raise TagfillError(f"options.curriculum.every is {every}; it is a number of epochs, at least 1.")
        self._present_above, self._absent_below, self._every = present_above, absent_below, every
        self._last: tuple[Tensor, Tensor] | None = None

    def setup(self, task: Task) -> None:
        """Ask for the table of pseudo-labels."""
        self._task = task
        self._pseudo = task.memory.pseudo_labels()

    def first_epoch(self, epochs: int) -> int:
        """The epoch of the first pseudo-labels."""
        return self._every + 1

    def begin_epoch(self, epoch: int) -> None:
        """Update the pseudo-labels every few epochs; a stage starts with those in its memory."""
        if epoch > 1 and (epoch - 1) % self._every == 0:
            scores = training_scores(self._task)
            self._pseudo.clear()
            self._pseudo.assign(scores >= self._present_above, POSITIVE)
            self._pseudo.assign(scores <= self._absent_below, NEGATIVE)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Cross-entropy of labels and pseudo-labels, weighted by how many there are."""
        pseudo = self._pseudo.read(batch.index).to(batch.labels.dtype)  # 1, 0, or -1 for none
        pseudo = upload(pseudo, batch.labels.device).masked_fill(batch.labels != UNKNOWN, UNKNOWN)
        self._last = batch.index, pseudo
        labels = torch.where(batch.labels == UNKNOWN, pseudo, batch.labels)
        return {"curriculum": losses.weighted_known(prediction.logits, labels)}

    def decisions(self) -> Decisions | None:
        """The pseudo-labels of the last step."""
        return None if self._last is None else pseudo_label_decisions(*self._last)
