"""GR: soft pseudo-labels and weights of unknown labels that follow from the prediction and change over the epochs.

    L = mean( 1[z=1] (−log f) + 1[z=−1] v(f)·( k(f)·(1 − f^q₂)/q₂ + (1 − k(f))·(1 − (1−f)^q₃)/q₃ ) )

    k(f) = σ(w·f + b),   v(f) = exp(−(f − μ)²/(2σ²))

w, b, μ and σ move in a straight line from their first to their last values over the epochs of the stage: at first
nothing is pseudo-labeled and all unknown labels count alike; later confident predictions are partly taken as present,
and easy negatives count less. The equations are with `losses.generalized_robust`.

Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss, IJCAI 2024. The defaults
are the example in the description of their code. Deviation: the last epoch has exactly the last values. In the code of
AEVLP (ICCV 2025), which extends GR, w and b do not reach them, and μ and σ move one epoch earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction, Task
from tagfill.errors import TagfillError
from tagfill.methods.base import Scheduled


class GeneralizedRobust(Scheduled):
    """Unknown labels are partly present and partly absent, as the prediction says, with robust losses.

    Args:
        slope: w of k, in the first and in the last epoch.
        offset: b of k.
        center: μ of v.
        spread: σ of v.
        q_present: q₂, of the loss of a present label; near 0 is cross-entropy, 1 the absolute error.
        q_absent: q₃, of the loss of an absent label.
        eps: added to probabilities inside logarithms.
    """

    paper = "Chen et al., IJCAI 2024"

    def __init__(
        self,
        *,
        slope: Sequence[float] = (0.0, 2.0),
        offset: Sequence[float] = (-2.0, -2.0),
        center: Sequence[float] = (0.5, 0.8),
        spread: Sequence[float] = (2.0, 0.5),
        q_present: float = 0.01,
        q_absent: float = 1.0,
        eps: float = 0.0,
    ) -> None:
        self._ranges = {"slope": slope, "offset": offset, "center": center, "spread": spread}
        for name, values in self._ranges.items():
            if len(values) != 2 or (name == "spread" and min(values) <= 0):
                kind = "two positive numbers" if name == "spread" else "two numbers"
                raise TagfillError(
                    f"options.gr.{name} is {list(values)}; give {kind}, for the first and the last epoch."
                )
        if not (0 < q_present <= 1 and 0 < q_absent <= 1):
            raise TagfillError(
                f"The method 'gr' needs q_present and q_absent above 0 and at most 1; they are {q_present} and "
                f"{q_absent}."
            )
        self._fixed: dict[str, Any] = {"q_present": q_present, "q_absent": q_absent, "eps": eps}

    def setup(self, task: Task) -> None:
        """Remember the number of epochs."""
        self._epochs = task.epochs

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """One term, with the values of this epoch."""
        share = (self._epoch - 1) / max(self._epochs - 1, 1)
        now = {name: (1 - share) * first + share * last for name, (first, last) in self._ranges.items()}
        return {"gr": losses.generalized_robust(prediction.logits, batch.labels, **{**self._fixed, **now})}
