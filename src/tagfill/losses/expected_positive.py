"""EPR and ROLE: learn from positives, with a penalty on how many positives are predicted on average.

    κ̂ = (1/B) Σ_n Σ_i f_ni                    the predicted positives of an image, averaged over the batch
    R(f) = ((κ̂ − κ) / L)²                     κ = `expected`

**EPR**, expected positive regularization:

    L = w mean_BL[ 1[z=1] ℓ⁺ ] + λ R(f)        λ = `weight` and w = `positive_weight`, both 1 as published

κ counts all true positives of an image, including the observed ones. R depends on the batch and not on single images,
so it needs a batch of some size (8 or 16 as published), and explicit negatives enter only through R. R is part of every
entry, so a reduction scales the whole loss and leaves its balance unchanged: "sum" is B·L times "mean". The form
without 1/L in front of the positive term, of later texts, is positive_weight=L.

**ROLE**, regularized online label estimation: a classifier and a table of label estimates teach each other.

    f = σ(g), q = σ(φ)                               the classifier's predictions, the estimates
    H(a; b) = −b log a − (1−b) log(1−a)
    L'(a | b) = mean_BL[ H(a; sg(b)) ] + w mean_BL[ 1[z=1] (−log a) ] + R(a)
    L = ½ ( L'(f | q) + L'(q | f) )

sg() stops the gradient, so the classifier learns only from L'(f | q) and the estimates only from L'(q | f).
w = `positive_weight` is 1 in the published code; L makes the positive term a mean over images instead of entries. R is
part of every entry as in EPR. Logarithms have eps = 1e-5 as published; the default here is exact.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tagfill.labels import POSITIVE
from tagfill.losses.base import Reduction, cross_entropy, positive_term, prepare, reduce, shape_of, to_float


def positive_count_penalty(probabilities: Tensor, expected: float) -> Tensor:
    """R: the squared error of the mean number of positives, relative to the number of classes.

    Args:
        probabilities: B×L.
        expected: κ, the true number of positives per image, on average.

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
    """Cross-entropy of observed positives plus the penalty on the mean number of positives.

    Args:
        logits: B×L.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        expected: κ, the true number of positives per image, on average.
        weight: λ of the penalty.
        positive_weight: w of the observed positives.
        reduction: see `losses.reduce`; the penalty is part of every entry.
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


def role_half(
    logits: Tensor,
    labels: Tensor,
    target: Tensor,
    *,
    expected: float,
    positive_weight: float = 1.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """L'(a | b): one learner taught by the other, without the factor ½.

    Args:
        logits: B×L, of the learner a.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        target: B×L probabilities of the teacher b; treated as constants.
        expected: κ, the true number of positives per image, on average.
        positive_weight: w of the observed positives.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> import torch
        >>> logits, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, -1]])
        >>> role_half(logits, labels, torch.tensor([[0.9, 0.4]]), expected=1.5)
        tensor(0.6142)
    """
    logits = prepare(logits, labels)
    if target.shape != logits.shape:
        raise ValueError(f"The logits are {shape_of(logits)} and the target {shape_of(target)}; they must agree.")
    taught = cross_entropy(logits, target.detach().to(logits.dtype), eps)
    observed = positive_term(logits, eps).masked_fill(labels != POSITIVE, 0.0)
    penalty = positive_count_penalty(logits.sigmoid(), expected)
    return reduce(taught + positive_weight * observed + penalty, labels, reduction)


def role(
    logits: Tensor,
    labels: Tensor,
    estimates: Tensor,
    *,
    expected: float,
    positive_weight: float = 1.0,
    reduction: Reduction = "mean",
    eps: float = 0.0,
) -> Tensor:
    """Both halves in one scalar, for a loop that steps classifier and estimates together.

    Args:
        logits: B×L, of the classifier.
        labels: B×L, 1 present, 0 absent, -1 unknown.
        estimates: B×L logits φ, the rows of the estimate table for these images.
        expected: κ, the true number of positives per image, on average.
        positive_weight: w of the observed positives.
        reduction: see `losses.reduce`.
        eps: added to probabilities inside logarithms.

    Example:
        >>> import torch
        >>> logits, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, -1]])
        >>> role(logits, labels, torch.tensor([[5.0, 0.2]]), expected=1.5)
        tensor(0.6366)
    """
    shared: dict[str, Any] = {
        "expected": expected,
        "positive_weight": positive_weight,
        "reduction": reduction,
        "eps": eps,
    }
    classifier = role_half(logits, labels, to_float(estimates).sigmoid(), **shared)
    estimator = role_half(estimates, labels, to_float(logits).sigmoid(), **shared)
    return (classifier + estimator) / 2
