"""ROLE: the classifier f and a free table of label estimates q = σ(φ) teach each other.

    H(a; b)   = −b log a − (1−b) log(1−a)                      b held constant
    L'(a | b) = mean H(a; b) + w mean 1[z=1](−log a) + ((mean Σ a − κ) / L)²
    L_ROLE    = ½ (L'(f | q) + L'(q | f))

The first half trains the classifier, the second the table, each with the other held constant. κ is the expected number
of positives per image. The table has its own optimizer, as published a dense Adam at ten times the classifier's
learning rate, and is dropped after training. A stage that starts with the memory of an earlier one starts from its
probabilities (LinearInit).

With many classes the table may keep k estimates per image (`memory/estimates.py`): once the image was visited, the
others are q = 1e-5, both in what the classifier is taught and in the counts of both halves.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021. As in their code the positive term is divided
by B·L (w = 1); logarithms are exact unless `eps` is set (1e-5 in their code).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction, Task, upload
from tagfill.memory.estimates import EstimateOptimizer
from tagfill.methods.base import BaseMethod, expected_positives


class Role(BaseMethod):
    """Regularized online label estimation: a table of estimates is trained along with the classifier.

    Args:
        expected: κ, positives per image; None uses the task's estimate.
        optimizer: of the table.
        lr_multiplier: learning rate of the table over that of the classifier.
        positive_term: "mean" over entries (w = 1), or "batchmean" over images (w = L).
        classes_per_image: keep estimates of this many classes per image, the others as absent; None keeps all.
        eps: added to probabilities inside logarithms.
    """

    needs = frozenset({"memory", "expected_positives"})
    paper = "Cole et al., CVPR 2021"

    def __init__(
        self,
        *,
        expected: float | None = None,
        optimizer: EstimateOptimizer = "dense_adam",
        lr_multiplier: float = 10.0,
        positive_term: Literal["mean", "batchmean"] = "mean",
        classes_per_image: int | None = None,
        eps: float = 0.0,
    ) -> None:
        self._given = expected
        self._optimizer: EstimateOptimizer = optimizer
        self._lr_multiplier = lr_multiplier
        self._positive_term = positive_term
        self._classes_per_image = classes_per_image
        self._eps = eps
        self._pending: tuple[Tensor, Tensor, Tensor] | None = None  # logits, estimates, the table's half of the loss

    def setup(self, task: Task) -> None:
        """Ask for the table of estimates."""
        self._task = task
        self._options: dict[str, Any] = {
            "expected": expected_positives("role", self._given, task),
            "positive_weight": len(task.classes) if self._positive_term == "batchmean" else 1.0,
            "eps": self._eps,
        }
        self._estimates = task.memory.estimates(optimizer=self._optimizer, classes_per_image=self._classes_per_image)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Both halves; only the classifier's has a gradient here, and the table is stepped in `observe`."""
        logits = prediction.logits.detach()
        estimates, table_loss = self._table_half(batch, logits)
        self._pending = logits, estimates, table_loss
        return {
            "role": 0.5 * self._half(prediction.logits, estimates.detach(), batch.labels),
            "estimates": table_loss.detach(),
        }

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Step the table with the gradient of its half."""
        if self._pending is not None and self._pending[0].data_ptr() == prediction.logits.data_ptr():
            _, estimates, table_loss = self._pending
        else:  # `loss` was not called for this prediction
            estimates, table_loss = self._table_half(batch, prediction.logits)
        (gradient,) = torch.autograd.grad(table_loss, estimates)
        self._pending = None
        self._estimates.keep(batch.index, prediction.logits)
        self._estimates.step(batch.index, gradient, self._lr_multiplier * self._task.lr)

    def _table_half(self, batch: Batch, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The estimates of a batch, and ½ L'(q | f) with a gradient to them."""
        estimates = upload(self._estimates.read(batch.index), logits.device).requires_grad_()
        with torch.enable_grad():
            return estimates, 0.5 * self._half(estimates, logits, batch.labels)

    def _half(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        return losses.role_half(student, labels, teacher.sigmoid(), **self._options)
