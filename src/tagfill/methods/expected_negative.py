"""EN: leave out the most likely unannotated positives of each class, and use all other unknowns as negatives.

    p_i   = K · #{n : z_ni = 1}                     expected positives of class i in the training set
    s⁰    = 1[z=1],  sᵗ = μ sᵗ⁻¹ + (1−μ) fᵗ         running scores
    ẑ_·i  = 1 for the p_i images with the largest s_ni at the start of an epoch; in the first, ẑ = 1[z=1]
    L_EN  = mean( 1[z=1] ℓ⁺ + 1[ẑ=0] ℓ⁻ )

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.

Two choices where the paper is silent. An annotated positive that drops out of the best p_i is not penalised as a
negative. p_i is rounded half up and at most the number of images.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction, Task
from tagfill.errors import TagfillError
from tagfill.methods.stateless import Stateless


class ExpectedNegative(Stateless):
    """Expected negatives.

    Args:
        expected: K, true labels per image; None takes the task's estimate.
        momentum: μ of the running scores.
    """

    def __init__(self, *, expected: float | None = None, momentum: float = 0.8) -> None:
        self._expected = expected
        self._momentum = momentum

    def setup(self, task: Task) -> None:
        """Count the expected positives and ask for scores and for the set of likely positives."""
        expected = self._expected if self._expected is not None else task.expected_positives
        if expected is None:
            raise TagfillError(
                "The method 'en' needs the expected number of present labels an image: set options.en.expected, or "
                "give a validation split with complete labels to estimate it from."
            )
        self._task = task
        self._scores = task.memory.scores(momentum=self._momentum)
        self._likely = task.memory.entries("expected_positives")
        observed = torch.from_numpy(task.labels.positives)
        self.counts = (observed.double() * expected + 0.5).floor().long().clamp(max=task.size)

    def begin_epoch(self, epoch: int) -> None:
        """From the second epoch on, choose the likely positives anew; the first of a stage has none, as in AN."""
        self._likely.clear()
        if epoch > 1:
            index = torch.from_numpy(self._task.shard)
            self._likely.replace(self._task.ranks.top_per_class(self._scores.values, index, self.counts))

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Positives, and negatives that are not likely positives."""
        likely = self._likely.read(batch.index).to(prediction.logits.device)
        return {"en": losses.expected_negative(prediction.logits, batch.labels, likely)}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the running scores."""
        if self._task.memory.first_write("scores"):
            self._scores.update(batch.index, prediction.logits.sigmoid())
