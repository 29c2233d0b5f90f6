"""EN, expected negative: leave out the likeliest unannotated positives, and read all other unknowns as absent.

    EN  1[z=1] ℓ⁺ + 1[ẑ=0] ℓ⁻                ẑ = `expected_positives`, the highest-scoring images of each class
    EP  1[z=1 or ẑ=1] ℓ⁺ + 1[ẑ=0] ℓ⁻         the ablation that believes ẑ instead of leaving it out

An explicit negative has ẑ=0 whatever the ranking says. An observed positive can fall out of its class's ẑ, and
the printed formula then both rewards and penalises it; here it is never penalised unless `literal` asks for it.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations,
WACV 2023.
"""

from __future__ import annotations

from torch import Tensor

from tagfill.losses.reduction import NEGATIVE, POSITIVE, Reduction, reduce
from tagfill.losses.terms import negative_term, positive_term, prepare, shape_of


def expected_negative(
    logits: Tensor,
    labels: Tensor,
    expected_positives: Tensor,
    *,
    also_positive: bool = False,
    literal: bool = False,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Binary cross-entropy that does not penalise expected positives.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        expected_positives: B×L bool, ẑ.
        also_positive: give expected positives the positive term too (EP).
        literal: penalise an observed positive outside ẑ, as printed.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> import torch
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, -1, -1]])
        >>> expected_negative(logits, labels, torch.tensor([[True, False, True]]))
        tensor(0.1467)
    """
    logits = prepare(logits, labels)
    if expected_positives.shape != labels.shape:
        raise ValueError(
            f"The labels are {shape_of(labels)} and the expected positives {shape_of(expected_positives)}; "
            "they must agree."
        )
    observed = labels == POSITIVE
    expected = expected_positives.bool() & (labels != NEGATIVE)
    rewarded = observed | expected if also_positive else observed
    penalised = ~expected if literal else ~(expected | observed)
    loss = rewarded * positive_term(logits, eps) + penalised * negative_term(logits, eps)
    return reduce(loss, labels, reduction)
