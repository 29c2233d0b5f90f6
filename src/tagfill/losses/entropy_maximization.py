"""EM, entropy maximization, and EM with asymmetric pseudo-labels: unknown labels should be undecided.

    H(f) = −f log f − (1−f) log(1−f)
    EM   1[z=1] (−log f) − α 1[z≠1] H(f)                                    α = `alpha`
    APL  the same, but entries with a pseudo-label s:  β (−s log f − (1−s) log(1−f))       β = `soft_weight`

Assuming absence pushes every unknown label down. EM only asks that nothing be claimed about it: the slope of its term,
α g f (1−f), draws a logit gently to zero and vanishes both there and where the model is certain. Scores of negatives
end near 1/2, so that a threshold between present and absent belongs near 3/4.

The paper has single positives and no explicit negatives; as printed, one would be drawn to 1/2 like an unknown label.
With `use_negatives` it costs −log(1−f) instead. Published: eps = 1e-5, and for VOC, COCO, NUS-WIDE, CUB
α = 0.2, 0.1, 0.1, 0.01 and β = 0.02, 0.9, 0.2, 0.4.

Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels, ECCV 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.losses.base import Reduction, cross_entropy, negative_term, positive_term, prepare, reduce, shape_of


def entropy_maximization(
    logits: Tensor,
    labels: Tensor,
    *,
    alpha: float = 0.1,
    soft_labels: Tensor | None = None,
    soft_weight: float = 0.9,
    use_negatives: bool = False,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Cross-entropy of observed positives minus the entropy of unknown labels.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        alpha: α, the weight of the entropy.
        soft_labels: B×L, pseudo-labels s in [0, 1], negative where there is none; treated as constants.
        soft_weight: β, the weight of an entry with a pseudo-label.
        use_negatives: penalize explicit negatives instead of maximizing their entropy.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> entropy_maximization(logits, labels)
        tensor(0.0008)
        >>> entropy_maximization(logits, labels, soft_labels=torch.tensor([[-1.0, 0.2, -1.0]]))
        tensor(0.1742)
    """
    logits = prepare(logits, labels)
    entropy = logits.sigmoid() * positive_term(logits, eps) + torch.sigmoid(-logits) * negative_term(logits, eps)
    loss = torch.where(labels == POSITIVE, positive_term(logits, eps), -alpha * entropy)
    if soft_labels is not None:
        if soft_labels.shape != labels.shape:
            raise ValueError(
                f"The labels are {shape_of(labels)} and the soft labels {shape_of(soft_labels)}; they must agree."
            )
        target = soft_labels.detach().to(logits.dtype)
        soft = (target >= 0) & (labels != POSITIVE)
        loss = torch.where(soft, soft_weight * cross_entropy(logits, target, eps), loss)
    if use_negatives:
        loss = torch.where(labels == NEGATIVE, negative_term(logits, eps), loss)
    return reduce(loss, labels, reduction)
