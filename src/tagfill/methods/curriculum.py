"""Curriculum labelling: train on what is known, then take the model's surest answers for labels, and again.

    train   L = wNE over z̃                       weighted by how few of an image's labels are known
    label   z̃ = z where known;  1 where f ≥ θ⁺;  0 where f ≤ θ⁻;  unknown elsewhere

Labels are given anew each time, from the model as it is then, so that an answer that it no longer stands by is taken
back. A pseudo-label counts as known in the weight of its image.

Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels, CVPR 2019, add labels by
score among other strategies. Choices of ours: thresholds on probabilities, 0.9 and 0.1, and a pass after each epoch.
Like every method that leaves unknown labels out, it needs some negatives to begin with: from positives alone it learns
to call everything present.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.methods.base import Stateless, pseudo_labelled, training_scores


class Curriculum(Stateless):
    """Labels that the model is sure of are taken for known, anew every few epochs.

    Args:
        present_above: θ⁺, the probability from which an unknown label is taken for present; 1.01 takes none.
        absent_below: θ⁻, the probability up to which one is taken for absent; -0.01 takes none.
        every: epochs between two passes over the training images.
    """

    needs = frozenset({"memory"})
    paper = "Durand et al., CVPR 2019"

    def __init__(self, *, present_above: float = 0.9, absent_below: float = 0.1, every: int = 1) -> None:
        if present_above <= absent_below:
            raise TagfillError(
                f"curriculum takes labels above {present_above} for present and below {absent_below} for absent; "
                "the first must be the larger one."
            )
        if every < 1:
            raise TagfillError(f"curriculum labels anew every {every} epochs; give at least 1.")
        self._present_above, self._absent_below, self._every = present_above, absent_below, every
        self._last: tuple[Tensor, Tensor] | None = None

    def setup(self, task: Task) -> None:
        """Ask for the table of pseudo-labels."""
        self._task = task
        self._pseudo = task.memory.pseudo_labels()

    def begin_epoch(self, epoch: int) -> None:
        """Label anew after every few epochs; a stage begins with what its memory begins with."""
        if epoch > 1 and (epoch - 1) % self._every == 0:
            scores = training_scores(self._task)
            self._pseudo.clear()
            self._pseudo.assign(scores >= self._present_above, POSITIVE)
            self._pseudo.assign(scores <= self._absent_below, NEGATIVE)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Cross-entropy of labels and pseudo-labels, weighted by how many there are."""
        pseudo = self._pseudo.read(batch.index)  # 1, 0, or -1 for none
        pseudo = pseudo.to(batch.labels).masked_fill(batch.labels != UNKNOWN, UNKNOWN)
        self._last = batch.index, pseudo
        labels = torch.where(batch.labels == UNKNOWN, pseudo, batch.labels)
        return {"curriculum": losses.weighted_known(prediction.logits, labels)}

    def decisions(self) -> Decisions | None:
        """The pseudo-labels of the last step."""
        return None if self._last is None else pseudo_labelled(*self._last)
