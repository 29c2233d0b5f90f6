"""ROLE: the classifier f and a free table of label estimates q = σ(φ) teach each other.

    H(a; b)   = −b log a − (1−b) log(1−a)                      b held constant
    L'(a | b) = mean H(a; b) + mean 1[z=1](−log a) + ((mean Σ a − κ) / L)²
    L_ROLE    = ½ (L'(f | q) + L'(q | f))

The first half trains the classifier, the second the table, each with the other held constant. κ is the expected
number of present labels an image. The table has its own Adam at ten times the classifier's learning rate and is
dropped after training.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021. As in their code the positive term is
divided by B·L; logarithms are exact unless `eps` is set (1e-5 in their code).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction, Task
from tagfill.errors import TagfillError
from tagfill.methods.stateless import Stateless


class Role(Stateless):
    """Regularised online label estimation.

    Args:
        lr_multiplier: learning rate of the table over that of the classifier.
        eps: added to probabilities inside logarithms.
    """

    def __init__(self, *, lr_multiplier: float = 10.0, eps: float = 0.0) -> None:
        self._lr_multiplier = lr_multiplier
        self._eps = eps

    def setup(self, task: Task) -> None:
        """Ask for the table of estimates."""
        if task.expected_positives is None:
            raise TagfillError(
                "The method 'role' needs the expected number of present labels an image: set expected_positives, or "
                "give a validation split with complete labels to estimate it from."
            )
        self._task = task
        self._expected = task.expected_positives
        self._estimates = task.memory.estimates()

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Both halves; only the classifier's has a gradient here."""
        estimates = self._estimates.read(batch.index).to(prediction.logits.device)
        return {
            "role": 0.5 * self._half(prediction.logits, estimates, batch.labels),
            "estimates": 0.5 * self._half(estimates, prediction.logits.detach(), batch.labels),
        }

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Step the table with the gradient of its half."""
        estimates = self._estimates.read(batch.index).to(prediction.logits.device).requires_grad_()
        with torch.enable_grad():
            value = 0.5 * self._half(estimates, prediction.logits, batch.labels)
        (gradient,) = torch.autograd.grad(value, estimates)
        self._estimates.step(batch.index, gradient, self._lr_multiplier * self._task.lr)

    def _half(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        return losses.role_half(student, labels, teacher.sigmoid(), expected=self._expected, eps=self._eps)
