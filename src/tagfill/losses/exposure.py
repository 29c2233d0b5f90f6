"""Full and Soft Exposure: every unknown label takes part, as a hard target or as a soft one.

**FE**, full exposure, treats all unknown labels alike and gives observed positives more weight:

    L = w₊ 1[z=1] ℓ⁺ + 1[z=0] ℓ⁻ + 1[z=−1] ℓ⁻          w₊ = `positive_weight`, 5 as published

The paper adds that in some data, such as medical records, what was not noted is rather present: with
`unknown_as="present"` the last term is ℓ⁺, without the weight. The published reduction is "batchmean". Their no
exposure is `ignore_unknown`.

**SE**, Soft Exposure, makes every unknown label a soft positive or a soft negative, as soft as its temperature says:

    σ(g, T) = 1 / (1 + exp(−g/T))
    SE  w₊ 1[z=1] ℓ⁺(g) + 1[z=0] ℓ⁻(g) + 1[z=−1] ℓ⁺(g / T)        T = `temperature`, w₊ = `positive_weight`
    LS  the same with one negative T for all                       the baseline with one constant temperature

T > 0 pushes a logit up and T < 0 pushes it down, by at most 1/|T|. T = −1 for all unknowns treats them as absent. T = 0
is not a temperature: it marks an unknown label that is ignored. The paper defines y = σ(g) and then applies σ to y once
more; here σ is applied to the logit once. They sum over classes, average over images, and state w₊ = 5 for their
baseline that treats unknowns as absent.

Kundu and Tighe, Exploiting weakly supervised visual patterns to learn from partial annotations, NeurIPS 2020.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.losses.base import Reduction, negative_term, positive_term, prepare, reduce, shape_of

Reading = Literal["absent", "present"]

COLDEST = 1e-3  # below, the gradient of a soft label would exceed a thousand times that of a hard one


def full_exposure(
    logits: Tensor,
    labels: Tensor,
    *,
    positive_weight: float = 5.0,
    unknown_as: Reading = "absent",
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Binary cross-entropy that treats unknown labels as absent or as present, and weights observed positives.

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
        raise ValueError(f"An unknown label cannot be treated as '{unknown_as}'. Known: absent, present.")
    logits = prepare(logits, labels)
    present = positive_term(logits, eps)
    absent = negative_term(logits, eps)
    unknown = absent if unknown_as == "absent" else present
    loss = torch.where(labels == POSITIVE, positive_weight * present, torch.where(labels == NEGATIVE, absent, unknown))
    return reduce(loss, labels, reduction)


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
        temperature: B×L or one number for all; used where labels are unknown. Above 0 a soft positive, below 0 a soft
            negative, 0 ignored; otherwise of magnitude 1e-3 at least.
        positive_weight: w₊, of the observed positives.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Raises:
        ValueError: on the CPU, if a temperature is too close to zero, or not finite.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> soft_exposure(logits, labels, torch.tensor([[0.0, 12.2, -1.0]]))
        tensor(2.3437)
    """
    logits = prepare(logits, labels)
    unknown = labels == UNKNOWN
    temperatures = temperature.to(logits) if isinstance(temperature, Tensor) else logits.new_full((), temperature)
    if temperatures.ndim and temperatures.shape != labels.shape:
        raise ValueError(
            f"The labels are {shape_of(labels)} and the temperatures {shape_of(temperatures)}; they must agree."
        )
    temperatures = temperatures.expand_as(logits).masked_fill(~unknown, 1.0)
    ignored = temperatures == 0
    if logits.device.type == "cpu" and not bool(
        (ignored | ((temperatures.abs() >= COLDEST) & temperatures.isfinite())).all()
    ):  # an accelerator would have to be waited for
        raise ValueError(f"A temperature is neither 0 nor a finite number of magnitude {COLDEST} or more.")
    soft = positive_term(logits / temperatures.masked_fill(ignored, 1.0), eps).masked_fill(ignored, 0.0)
    known = torch.where(labels == POSITIVE, positive_weight * positive_term(logits, eps), negative_term(logits, eps))
    return reduce(torch.where(unknown, soft, known), labels, reduction)
