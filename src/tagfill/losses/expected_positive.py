"""EPR, expected positive regularisation: learn from positives only, and fix how many are predicted on average.

    κ̂ = (1/B) Σ_n Σ_i f_ni                    the predicted positives of an image, averaged over the batch
    R(f) = ((κ̂ − κ) / L)²                     κ = `expected`
    L = w mean_BL[ 1[z=1] ℓ⁺ ] + λ R(f)        λ = `weight` and w = `positive_weight`, both 1 as published

κ counts all true positives of an image, the observed ones included. R speaks of the batch and not of an image,
so it needs a batch of some size (8 or 16 as published), and explicit negatives enter through R alone.

R stands in every entry, so a reduction scales the whole loss and leaves its balance alone: "sum" is B·L times
"mean". The form without 1/L in front of the positive term, of later texts, is positive_weight=L.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from torch import Tensor

from tagfill.losses.reduction import POSITIVE, Reduction, reduce
from tagfill.losses.terms import positive_term, prepare


def positive_count_penalty(probabilities: Tensor, expected: float) -> Tensor:
    """R, the squared error of the mean positive count, in units of the number of classes.

    Args:
        probabilities: B×L.
        expected: κ, the true number of positives of an image, on average.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> positive_count_penalty(torch.tensor([[0.9, 0.1], [0.8, 0.6]]), expected=1.0)
        tensor(0.0100)
    """
    images, classes = probabilities.shape
    count = probabilities.sum() / max(images, 1)
    return ((count - expected) / classes) ** 2


def expected_positive(
    logits: Tensor,
    labels: Tensor,
    *,
    expected: float,
    weight: float = 1.0,
    positive_weight: float = 1.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Cross-entropy of the observed positives plus the penalty on the mean positive count.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        expected: κ, the true number of positives of an image, on average.
        weight: λ of the penalty.
        positive_weight: w of the observed positives.
        reduction: see `losses.reduce`; the penalty stands in every entry.
        eps: added to probabilities inside logarithms (1e-5 as published).

    Example:
        >>> import torch
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> expected_positive(logits, labels, expected=1.5)
        tensor(0.0505)
    """
    logits = prepare(logits, labels)
    observed = positive_term(logits, eps).masked_fill(labels != POSITIVE, 0.0)
    penalty = positive_count_penalty(logits.sigmoid(), expected)
    return reduce(positive_weight * observed + weight * penalty, labels, reduction)
