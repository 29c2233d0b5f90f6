"""Label errors: which annotations are probably wrong, how many, and none where there is no evidence.

Works on cross-fitted logits z (`crossfit.py`), one class at a time, in the way of confident learning (Northcutt,
Jiang and Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021). A tag of class c is an
annotation "present"; the others of c are pairs annotated as absent, and pairs that are unknown.

Thresholds. As in confident learning, a class has two, the mean probabilities σ(z) of its tags and of its others:

    t⁺_c = mean of σ(z) over the tags of c          t⁻_c = mean of σ(z) over the others of c

A tag can be doubted only if σ(z) ≤ t⁻_c, an annotation "absent" only if σ(z) ≥ t⁺_c.

Number of errors. Confident learning counts the pairs beyond these thresholds, which include tags that are right and
hard to see. Here, errors are what a model of the true label y does not explain:

    p(y = 1 | z) = θ_c(z) = σ(a·z + b_c)
    p(tag | z)   = (1 - μ)·θ_c(z) + ω·(1 - θ_c(z))

ω is the probability that an absent class is tagged, μ that a present class is not. a, b_c, ω and μ are fitted by
expectation maximization; b_c has a normal prior of unit variance around the mean of all classes. Then

    p(wrong | tag, z)    = ω·(1 - θ) / (ω·(1 - θ) + (1 - μ)·θ)
    p(wrong | absent, z) = μ·θ / (μ·θ + (1 - ω)·(1 - θ))

and the sums E⁺ over tags and E⁻ over annotations "absent" estimate the numbers of errors.

E⁺ still counts some right tags, of objects that the model cannot see. A second estimate counts more of them: R is
twice the number of tags whose logit is below the median of the others of their class. Half of all wrong tags are
there, since they have the scores of others, so both count each wrong tag once. With correct labels, E⁺ was at most
about κ·R (`HARD`) in our experiments on VOC 2012, so

    number of wrong tags = (E⁺ - κ·R) / (1 - κ) - √E⁺          number of wrong "absent" = E⁻ - √E⁻

rounded down; √E is the standard error of a count. There is none if right annotations explain the scores.

Order. Annotations are ordered by the log-odds of p(wrong), and those of a tag increase with the evidence for another
class that is not tagged, because a wrong tag often replaces the right one:

    log-odds + λ·(m - mean of m over all tags),    m = largest logit of the other classes without a tag

What differs from confident learning and from `cleanlab.multilabel_classification`: unknown pairs are others and are
never doubted; the noise rates ω and μ are shared by all classes, since most classes have too few errors to estimate
their own; the number of errors is fitted instead of counted; the order uses the other classes of the photo. A class
with fewer than `FEWEST` tags or others is left out, and so is one whose tags do not have higher scores than its
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.probabilities import sigmoid

FEWEST = 10  # tags and others of a class
HARD = 0.4  # κ
OTHER_CLASS = 0.5  # λ
_BINS = 32  # per unit of the logits; pairs of a bin are fitted as one
_MAX_LOGIT = 50.0
_MAX_STEPS, _TOLERANCE = 500, 1e-6  # of expectation maximization

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelErrors:
    """Doubted annotations.

    Attributes:
        image: row of the logits, of each doubted annotation, most suspicious first.
        label: its class.
        suspicion: N×L, larger is more suspicious; -inf for what is not annotated or has no evidence.
        annotations: number of annotations that were examined.
        classes: number of classes with enough evidence to examine them.
        reason: why nothing is doubted; None if something is.
    """

    image: NDArray[np.int64]
    label: NDArray[np.int64]
    suspicion: Floats
    annotations: int
    classes: int
    reason: str | None

    @classmethod
    def none(cls, reason: str) -> LabelErrors:
        """No doubts, for a reason."""
        return _nothing(np.empty((0, 0)), 0, 0, reason)

    def __len__(self) -> int:
        return len(self.image)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "doubted": len(self),
            "annotations": self.annotations,
            "classes": self.classes,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class NoiseModel:
    """Probabilities of true labels and of annotation errors; see the module's description.

    Attributes:
        slope: a.
        offset: b_c.
        wrong_tag: ω.
        missed_tag: μ.
    """

    slope: float
    offset: Floats
    wrong_tag: float
    missed_tag: float

    def log_odds(self, logits: NDArray[np.floating]) -> tuple[Floats, Floats]:
        """Log-odds that a tag, and that an annotation "absent", is wrong, of N×L logits."""
        score = self.slope * np.asarray(logits, dtype=np.float64) + self.offset
        tag = _log(self.wrong_tag) - _log(1 - self.missed_tag) - score
        return tag, _log(self.missed_tag) - _log(1 - self.wrong_tag) + score


def find_label_errors(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> LabelErrors:
    """Find annotations that are probably wrong.

    Args:
        logits: N×L, cross-fitted: each from a model that was not trained on the image.
        labels: N×L, 1 present, 0 absent, -1 unknown.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels = (rng.random((2000, 3)) < 0.3).astype(np.int8)
        >>> logits = np.where(labels == 1, 4.0, -4.0) + rng.normal(size=labels.shape)
        >>> len(find_label_errors(logits, labels))
        0
        >>> labels[:100, 0] ^= 1
        >>> found = find_label_errors(logits, labels)
        >>> len(found) > 50, bool((found.image < 100).all() and (found.label == 0).all())
        (True, True)
    """
    z = np.clip(np.asarray(logits, dtype=np.float64), -_MAX_LOGIT, _MAX_LOGIT)
    tags, absent = labels == POSITIVE, labels == NEGATIVE
    usable = separated(z, tags)
    suspicion = np.full(z.shape, -np.inf)
    examined = (tags | absent) & usable
    if not usable.any():
        return _nothing(suspicion, 0, 0, _why_no_class(tags))
    chosen = [_doubted_tags(z, tags, usable, suspicion)]
    reviewable = usable & (absent.sum(0) >= FEWEST)
    if reviewable.any():
        chosen.append(_doubted_absent(z, tags, absent, reviewable, suspicion))
    image, label = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
    annotations, classes = int(examined.sum()), int(usable.sum())
    if not len(image):
        return _nothing(suspicion, annotations, classes, "correct annotations explain the scores")
    order = np.lexsort((label, image, -suspicion[image, label]))
    return LabelErrors(image[order], label[order], suspicion, annotations, classes, None)


def separated(logits: Floats, tags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Classes with enough tags and others, whose tags have higher logits: AUROC - 2 standard errors > 1/2.

    The standard error of an AUROC of 1/2 is √((n⁺ + n⁻ + 1) / (12·n⁺·n⁻)) (Mann and Whitney, 1947).
    """
    found = np.zeros(logits.shape[1], dtype=bool)
    for label in range(logits.shape[1]):
        of_tags, others = logits[tags[:, label], label], np.sort(logits[~tags[:, label], label])
        if min(len(of_tags), len(others)) < FEWEST:
            continue
        below = np.searchsorted(others, of_tags, "left") + np.searchsorted(others, of_tags, "right")
        auroc = below.sum() / (2 * len(of_tags) * len(others))
        error = np.sqrt((len(of_tags) + len(others) + 1) / (12 * len(of_tags) * len(others)))
        found[label] = auroc - 2 * error > 0.5
    return found


def fit_noise(logits: Floats, tags: NDArray[np.bool_], others: NDArray[np.bool_]) -> NoiseModel:
    """Fit the probabilities of true labels and of annotation errors.

    Args:
        logits: N×L.
        tags: N×L, pairs annotated as present.
        others: N×L, pairs to compare them with; the rest is ignored.
    """
    width = logits.shape[1]
    z, label, tagged, untagged = _binned(logits, tags, others)
    slope, offset, wrong, missed = 1.0, np.zeros(width), 1e-3, 0.05
    for _ in range(_MAX_STEPS):
        theta = sigmoid(slope * z + offset[label])
        right = _share((1 - missed) * theta, wrong * (1 - theta))
        hidden = _share(missed * theta, (1 - wrong) * (1 - theta))
        present = tagged * right + untagged * hidden
        absent = tagged + untagged - present
        new_wrong = float((tagged * (1 - right)).sum() / max(absent.sum(), 1e-12))
        new_missed = float((untagged * hidden).sum() / max(present.sum(), 1e-12))
        residual = (present + absent) * theta - present
        weight = (present + absent) * theta * (1 - theta)
        gradient = np.bincount(label, residual, width) + offset - offset.mean()
        curvature = np.bincount(label, weight, width) + 1
        mixed = np.bincount(label, weight * z, width)
        step = (residual @ z + 1e-3 * (slope - 1) - (mixed * gradient / curvature).sum()) / (
            weight @ z**2 + 1e-3 - (mixed**2 / curvature).sum()
        )
        steps = (gradient - mixed * step) / curvature
        scale = min(1.0, 1.0 / max(abs(step), np.abs(steps).max(), 1e-12))  # limit long steps, which may overshoot
        change = max(abs(step), np.abs(steps).max(), abs(new_wrong - wrong), abs(new_missed - missed))
        slope, offset, wrong, missed = slope - scale * step, offset - scale * steps, new_wrong, new_missed
        if change < _TOLERANCE:
            break
    return NoiseModel(float(slope), offset, wrong, missed)


def twice_below_median(logits: Floats, tags: NDArray[np.bool_], others: NDArray[np.bool_]) -> int:
    """R: twice the number of tags whose logit is below the median of the others of their class."""
    medians = np.nanmedian(np.where(others, logits, np.nan), axis=0)
    return 2 * int((tags & (logits < medians)).sum())


def strongest_other(logits: Floats, tags: NDArray[np.bool_]) -> Floats:
    """For each pair, the largest logit of the other classes without a tag; -inf if there is none. N×L.

    >>> strongest_other(np.array([[1.0, 3.0, 2.0]]), np.array([[True, False, False]])).tolist()
    [[3.0, 2.0, 3.0]]
    """
    free = np.where(tags, -np.inf, logits)
    rows, top = np.arange(len(free)), free.argmax(1)
    found = np.repeat(free[rows, top][:, None], free.shape[1], axis=1)
    free[rows, top] = -np.inf
    found[rows, top] = free.max(1)
    return found


def _doubted_tags(
    z: Floats, tags: NDArray[np.bool_], usable: NDArray[np.bool_], suspicion: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    candidates = tags & usable
    log_odds, _ = fit_noise(z, candidates, ~tags & usable).log_odds(z)
    expected = float(sigmoid(log_odds[candidates]).sum())
    other = strongest_other(z, tags)
    finite = np.isfinite(other)
    center = other[candidates & finite].mean() if (candidates & finite).any() else 0.0
    suspicion[candidates] = (log_odds + OTHER_CLASS * np.where(finite, other - center, 0.0))[candidates]
    probability = sigmoid(z)
    threshold = _class_means(probability, ~tags)
    number = (expected - HARD * twice_below_median(z, candidates, ~tags)) / (1 - HARD) - np.sqrt(expected)
    return _most_suspicious(suspicion, candidates & (probability <= threshold), number)


def _doubted_absent(
    z: Floats, tags: NDArray[np.bool_], absent: NDArray[np.bool_], usable: NDArray[np.bool_], suspicion: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    candidates = absent & usable
    _, log_odds = fit_noise(z, tags & usable, candidates).log_odds(z)
    expected = float(sigmoid(log_odds[candidates]).sum())
    suspicion[candidates] = log_odds[candidates]
    probability = sigmoid(z)
    threshold = _class_means(probability, tags)
    return _most_suspicious(suspicion, candidates & (probability >= threshold), expected - np.sqrt(expected))


def _most_suspicious(
    suspicion: Floats, candidates: NDArray[np.bool_], number: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    image, label = np.nonzero(candidates)
    order = np.lexsort((label, image, -suspicion[image, label]))[: max(int(number), 0)]
    return image[order], label[order]


def _class_means(probability: Floats, where: NDArray[np.bool_]) -> Floats:
    means: Floats = (probability * where).sum(0) / np.maximum(where.sum(0), 1)
    return means


def _binned(
    logits: Floats, tags: NDArray[np.bool_], others: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    """Bins of the logits of each class: mean logit, class, number of tags, number of others."""
    image, label = np.nonzero(tags | others)
    z, tagged = logits[image, label], tags[image, label].astype(np.float64)
    span = int(2 * _MAX_LOGIT * _BINS) + 1
    _, cell = np.unique(label * span + np.rint((z + _MAX_LOGIT) * _BINS).astype(np.int64), return_inverse=True)
    size = np.bincount(cell)
    class_of = np.zeros(len(size), dtype=np.int64)
    class_of[cell] = label
    of_tags: Floats = np.bincount(cell, tagged).astype(np.float64)
    return np.bincount(cell, z) / size, class_of, of_tags, (size - of_tags).astype(np.float64)


def _share(one: Floats, other: Floats) -> Floats:
    return one / np.maximum(one + other, 1e-300)


def _log(value: float) -> float:
    return float(np.log(max(value, 1e-300)))


def _why_no_class(tags: NDArray[np.bool_]) -> str:
    if not tags.any():
        return "nothing is annotated as present"
    enough = np.minimum(tags.sum(0), (~tags).sum(0)) >= FEWEST
    if not enough.any():
        return f"no class has {FEWEST} annotations to compare"
    return "the scores do not separate annotated images from others"


def _nothing(suspicion: Floats, annotations: int, classes: int, reason: str) -> LabelErrors:
    none = np.empty(0, np.int64)
    return LabelErrors(none, none, suspicion, annotations, classes, reason)
