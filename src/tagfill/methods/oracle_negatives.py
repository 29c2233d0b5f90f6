"""IUN: the oracle that is told every absent label, but only the observed present ones.

    L = mean( 1[z=1] ℓ⁺ + 1[y=0] ℓ⁻ )                y: the complete labels, which nobody has in practice

It tells how much of what is lost by partial labels is lost with the negatives. Unobserved positives are left out. Only
a simulated dataset knows its complete labels.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021. Their released code asks for y = −1, which a
matrix of 0 and 1 never holds, so that its negative term is silent; here it is not.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import NEGATIVE, POSITIVE, UNKNOWN, Batch, Prediction, Task
from tagfill.methods.stateless import Stateless


class OracleNegatives(Stateless):
    """Oracle: observed positives, and all true negatives of a simulated dataset.

    Args:
        eps: added to probabilities inside logarithms.
    """

    needs = frozenset({"truth"})
    paper = "Cole et al., CVPR 2021"

    def __init__(self, *, eps: float = 0.0) -> None:
        self._eps = eps

    def setup(self, task: Task) -> None:
        """Open the complete labels, or say that there are none."""
        self._truth = task.truth()

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Binary cross-entropy of observed positives and true negatives."""
        truth = self._truth.rows(batch.index.cpu().numpy())
        absent = torch.from_numpy(np.where(truth == NEGATIVE, NEGATIVE, UNKNOWN)).to(batch.labels)
        labels = torch.where(batch.labels == POSITIVE, batch.labels, absent)
        return {"iun": losses.binary(prediction.logits, labels, eps=self._eps)}
