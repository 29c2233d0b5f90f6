"""BoostLU: larger positive scores in class maps, against what false negatives took from them.

    b(s) = α s + (1 − α) β   where s > β,   s elsewhere
         = s + (α − 1) max(s − β, 0)

It is continuous at β and has no parameters. The slope at exactly β is 1, as in the published code; the paper's "s ≥ β"
would make it α. Classes without a single observed positive are not to be boosted in training, since all of their
positive scores are then pushed down α times as hard.

Kim, Kim, Jeong, Schmid, Akata and Lee: *Bridging the Gap between Model Explanations in Partially Annotated Multi-label
Classification*, CVPR 2023.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def boost(scores: Tensor, alpha: float | Tensor, beta: float = 0.0) -> Tensor:
    """Scores with what exceeds β stretched α times.

    Args:
        scores: of any shape.
        alpha: the slope above β; 1 changes nothing. A tensor that broadcasts gives each class its own.
        beta: where the boost begins.

    >>> import torch
    >>> boost(torch.tensor([[1.0, -2.0], [0.5, 0.0]]), 5.0).mean()
    tensor(1.3750)
    """
    return scores + (alpha - 1) * F.relu(scores - beta)
