"""FE, full exposure: every unknown label takes part, all read the same way, and observed positives weigh more.

    L = w₊ 1[z=1] ℓ⁺ + 1[z=0] ℓ⁻ + 1[z=−1] ℓ⁻          w₊ = `positive_weight`, 5 as published

The paper adds that in some data, such as medical records, what nobody noted down is rather present: with
`unknown_as="present"` the last term is ℓ⁺, without the weight. The published reduction is "batchmean".

Kundu and Tighe, Exploiting weakly supervised visual patterns to learn from partial annotations, NeurIPS 2020, compare
Soft Exposure (`soft_exposure`) with this and with no exposure, which is `ignore_unknown`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tagfill.losses.reduction import NEGATIVE, POSITIVE, Reduction, reduce
from tagfill.losses.terms import negative_term, positive_term, prepare

Reading = Literal["absent", "present"]


def full_exposure(
    logits: Tensor,
    labels: Tensor,
    *,
    positive_weight: float = 5.0,
    unknown_as: Reading = "absent",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Binary cross-entropy with unknown read as absent or as present, and weighted observed positives.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        positive_weight: w₊ of the observed positives.
        unknown_as: "absent" or "present".
        reduction: see `losses.reduce`; "batchmean" as published.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, 0, -1]])
        >>> full_exposure(logits, labels, reduction="batchmean")
        tensor(1.9220)
        >>> full_exposure(logits, labels, unknown_as="present", reduction="batchmean")
        tensor(1.4220)
    """
    if unknown_as not in ("absent", "present"):
        raise ValueError(f"An unknown label cannot be read as '{unknown_as}'. Known: absent, present.")
    logits = prepare(logits, labels)
    present = positive_term(logits, eps)
    absent = negative_term(logits, eps)
    unknown = absent if unknown_as == "absent" else present
    loss = torch.where(labels == POSITIVE, positive_weight * present, torch.where(labels == NEGATIVE, absent, unknown))
    return reduce(loss, labels, reduction)
