"""Soft Exposure: every unknown label is a soft positive or a soft negative, as soft as its temperature says.

    σ(g, T) = 1 / (1 + exp(−g/T))
    SE  w₊ 1[z=1] ℓ⁺(g) + 1[z=0] ℓ⁻(g) + 1[z=−1] ℓ⁺(g / T)        T = `temperature`, w₊ = `positive_weight`
    LS  the same with one negative T for all                       the baseline with one constant softness

T > 0 pushes a logit up and T < 0 pushes it down, by at most 1/|T|. T = −1 for all unknowns reads them as absent.
T = 0 is no temperature: it marks an unknown label that is left out.

The paper defines y = σ(g) and then applies σ to y once more; here σ is applied to the logit once.

Kundu and Tighe, Exploiting weakly supervised visual patterns to learn from partial annotations, NeurIPS 2020, who sum
over classes, average over images, and state w₊ = 5 for their baseline that reads unknowns as absent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.losses.reduction import POSITIVE, UNKNOWN, Reduction, reduce
from tagfill.losses.terms import negative_term, positive_term, prepare, shape_of

COLDEST = 1e-3  # below, the gradient of a soft label would be a thousand times that of a hard one


def soft_exposure(
    logits: Tensor,
    labels: Tensor,
    temperature: Tensor | float,
    *,
    positive_weight: float = 5.0,
    reduction: Reduction = "batchmean",
    eps: float = 0.0,
) -> Tensor:
    """Cross-entropy of the known labels, and of the unknown ones at a signed temperature.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        temperature: B×L or one number for all; read where labels are unknown. Above 0 a soft positive, below 0 a soft
            negative, 0 left out; of magnitude 1e-3 at least otherwise.
        positive_weight: w₊, of the observed positives.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Raises:
        ValueError: if a temperature is too close to zero, or not finite.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> soft_exposure(logits, labels, torch.tensor([[0.0, 12.2, -1.0]]))
        tensor(2.3437)
    """
    logits = prepare(logits, labels)
    unknown = labels == UNKNOWN
    softness = torch.as_tensor(temperature, dtype=logits.dtype, device=logits.device)
    if softness.ndim and softness.shape != labels.shape:
        raise ValueError(
            f"The labels are {shape_of(labels)} and the temperatures {shape_of(softness)}; they must agree."
        )
    softness = softness.expand_as(logits).masked_fill(~unknown, 1.0)
    left_out = softness == 0
    if not bool((left_out | ((softness.abs() >= COLDEST) & softness.isfinite())).all()):
        raise ValueError(f"A temperature is neither 0 nor a finite number of magnitude {COLDEST} or more.")
    soft = positive_term(logits / softness.masked_fill(left_out, 1.0), eps).masked_fill(left_out, 0.0)
    known = torch.where(labels == POSITIVE, positive_weight * positive_term(logits, eps), negative_term(logits, eps))
    return reduce(torch.where(unknown, soft, known), labels, reduction)
