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
    p(tag | z)   = (1 - μ)·θ_c(z) + ω_c·(1 - θ_c(z))

ω_c is the probability that the class is tagged where it is absent, μ that a present class is not tagged. All are
fitted by expectation maximization. b_c has a normal prior of variance 1/4 around the mean of all classes. ω_c has the
prior (ω_c / ω)^k, where ω is the mean of all classes and k = `SHARED_ERRORS`: a class with many more than k errors is
judged by its own rate, any other by that of all classes. Then

    p(wrong | tag, z)    = ω_c·(1 - θ) / (ω_c·(1 - θ) + (1 - μ)·θ)
    p(wrong | absent, z) = μ·θ / (μ·θ + (1 - ω_c)·(1 - θ))

and the sums E⁺ over tags and E⁻ over annotations "absent" estimate the numbers of errors.

E⁺ still counts some right tags, of objects that the model cannot see. A second estimate counts more of them: R is
twice the number of tags whose logit is below the median of the others of their class. Half of all wrong tags are
there, since they have the scores of others, so both count each wrong tag once. With correct labels, E⁺ was at most
about κ·R (`HARD`) in our experiments on VOC 2012, so

    number of wrong tags = (E⁺ - κ·R) / (1 - κ) - √E⁺          number of wrong "absent" = E⁻ - √E⁻

rounded down; √E is the standard error of a count. There is none if right annotations explain the scores.

Order. Annotations are ordered by the log-odds of p(wrong), with √(ω·ω_c) instead of ω_c, which is uncertain. A wrong
tag often replaces a right one, so those of a tag increase with the evidence for another class that is there and not
tagged. If the tag is right, class j is not tagged with probability μ·θ_j + 1 - θ_j; if the tag replaced class k, then k
is there. The odds are multiplied by

    Σ_k θ_k / (μ·θ_k + 1 - θ_k),    over the classes without a tag,

divided by its geometric mean over all tags. The larger μ, the less an untagged class says about the tags.

What differs from confident learning and from `cleanlab.multilabel_classification`: unknown pairs are others and are
never doubted; the noise rates of classes share information, since most classes have too few errors to estimate their
own; the number of errors is fitted instead of counted; the order uses the other classes of the photo. Nothing is
doubted of a class with fewer than `FEWEST` tags or others, or of one whose tags do not have higher scores than its
others. κ, k and the square root were chosen on photos of VOC 2012 and COCO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.probabilities import sigmoid

FEWEST = 10  # tags and others of a class
HARD = 0.5  # κ
SHARED_ERRORS = 3.0  # k
_VARIANCE = 0.25  # of b_c
_BINS = 32  # per unit of the logits; pairs of a bin are fitted as one
_MAX_LOGIT = 50.0
_MAX_STEPS, _TOLERANCE = 500, 1e-6  # of expectation maximization

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelErrors:
    """Doubted annotations.

    Attributes:
        image: number of the image (row of the logits) of each doubted annotation, most suspicious first.
        label: its class.
        suspicion: of each of these; larger is more suspicious.
        annotations: number of annotations that were examined.
        classes: number of classes with enough evidence to examine them.
        low_tags: E⁺, the expected number of tags with the scores of images without the tag.
        hard_tags: κ·R, as many of them as there may be if every tag is right.
        reason: why nothing is doubted; None if something is.
    """

    image: NDArray[np.int64]
    label: NDArray[np.int64]
    suspicion: Floats
    annotations: int
    classes: int
    low_tags: float
    hard_tags: float
    reason: str | None

    @classmethod
    def none(cls, reason: str) -> LabelErrors:
        """No doubts, for a reason."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, np.empty(0), 0, 0, 0.0, 0.0, reason)

    @classmethod
    def merge(cls, parts: list[LabelErrors]) -> LabelErrors:
        """Doubts of several parts of a dataset, whose numbers of images do not overlap."""
        if len(parts) == 1:
            return parts[0]
        image, label, suspicion = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("image", "label", "suspicion")
        )
        order = np.lexsort((label, image, -suspicion))
        return cls(
            image[order],
            label[order],
            suspicion[order],
            sum(part.annotations for part in parts),
            max(part.classes for part in parts),
            sum(part.low_tags for part in parts),
            sum(part.hard_tags for part in parts),
            None if len(image) else next(part.reason for part in parts),
        )

    def __len__(self) -> int:
        return len(self.image)

    def __str__(self) -> str:
        evidence = (
            f"about {self.low_tags:,.0f} tags score like photos without the tag; "
            f"up to {self.hard_tags:,.0f} correct tags would"
        )
        if self.reason is not None:
            return f"No annotation is doubted: {self.reason}" + (f" ({evidence})" if self.annotations else "")
        return f"{len(self):,} of {self.annotations:,} annotations are doubted, most suspicious first: {evidence}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "doubted": len(self),
            "annotations": self.annotations,
            "classes": self.classes,
            "low_tags": self.low_tags,
            "hard_tags": self.hard_tags,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class NoiseModel:
    """Probabilities of true labels and of annotation errors; see the module's description.

    Attributes:
        slope: a.
        offset: b_c.
        wrong_tag: ω_c.
        missed_tag: μ.
    """

    slope: float
    offset: Floats
    wrong_tag: Floats
    missed_tag: float

    def score(self, logits: NDArray[np.floating]) -> Floats:
        """Log-odds of the true label, N×L."""
        found: Floats = self.slope * np.asarray(logits, dtype=np.float64) + self.offset
        return found

    def log_odds(self, logits: NDArray[np.floating]) -> tuple[Floats, Floats]:
        """Log-odds that a tag, and that an annotation "absent", is wrong, of N×L logits."""
        score = self.score(logits)
        tag: Floats = _log(self.wrong_tag) - _log(1 - self.missed_tag) - score
        absent: Floats = _log(self.missed_tag) - _log(1 - self.wrong_tag) + score
        return tag, absent

    def log_replaced(self, logits: NDArray[np.floating], tags: NDArray[np.bool_]) -> Floats:
        """Log of the factor by which other classes without a tag increase the odds of a wrong tag, N.

        Its mean over all tags is 0, and it is 0 for an image on which every class is tagged.

        Example:
            >>> noise = NoiseModel(1.0, np.zeros(3), np.full(3, 0.01), 0.1)
            >>> tags = np.array([[True, False, False], [True, False, False]])
            >>> noise.log_replaced(np.array([[-2.0, 5.0, -4.0], [-2.0, -3.0, -4.0]]), tags).round(1).tolist()
            [2.5, -2.5]
        """
        odds = 1 / np.maximum(self.missed_tag + np.exp(np.minimum(-self.score(logits), 600)), 1e-12)
        total = (odds * ~tags).sum(1)
        found, some = np.zeros(len(total)), total > 0
        found[some] = np.log(total[some])
        weight = tags.sum(1) * some
        found[some] -= (found @ weight) / max(weight.sum(), 1)
        return found


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
    usable = separated(np.asarray(logits), labels == POSITIVE)
    if not usable.any():
        return LabelErrors.none(_why_no_class(labels == POSITIVE))
    suspicion, low, hard, chosen = _examine(logits, labels, usable)
    order = np.lexsort((*chosen.T[::-1], -suspicion[*chosen.T]))
    image, label = chosen[order].T
    examined = int(((labels != UNKNOWN) & usable).sum())
    reason = None if len(image) else "correct annotations explain the scores"
    return LabelErrors(image, label, suspicion[image, label], examined, int(usable.sum()), low, hard, reason)


def suspicion(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> Floats:
    """How suspicious each annotation is: N×L, larger is more suspicious, -inf for unknown labels.

    Annotations of classes without enough evidence are ordered by what all classes have in common.

    Args:
        logits: N×L, cross-fitted.
        labels: N×L, 1 present, 0 absent, -1 unknown.
    """
    return _examine(logits, labels, separated(np.asarray(logits), labels == POSITIVE))[0]


def separated(logits: NDArray[np.floating], tags: NDArray[np.bool_]) -> NDArray[np.bool_]:
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
    slope, offset, wrong, missed = 1.0, np.zeros(width), np.full(width, 0.05), 0.05
    for _ in range(_MAX_STEPS):
        theta = sigmoid(slope * z + offset[label])
        right = _share((1 - missed) * theta, wrong[label] * (1 - theta))
        hidden = _share(missed * theta, (1 - wrong[label]) * (1 - theta))
        present = tagged * right + untagged * hidden
        absent = tagged + untagged - present
        errors = np.bincount(label, tagged * (1 - right), width).astype(np.float64)
        new_wrong = _error_rates(errors, np.bincount(label, absent, width).astype(np.float64), float(wrong.mean()))
        new_missed = float((untagged * hidden).sum() / max(present.sum(), 1e-12))
        residual = (present + absent) * theta - present
        weight = (present + absent) * theta * (1 - theta)
        gradient = np.bincount(label, residual, width) + (offset - offset.mean()) / _VARIANCE
        curvature = np.bincount(label, weight, width) + 1 / _VARIANCE
        mixed = np.bincount(label, weight * z, width)
        step = (residual @ z + 1e-3 * (slope - 1) - (mixed * gradient / curvature).sum()) / (
            weight @ z**2 + 1e-3 - (mixed**2 / curvature).sum()
        )
        steps = (gradient - mixed * step) / curvature
        scale = min(1.0, 1.0 / max(abs(step), np.abs(steps).max(), 1e-12))  # limit long steps, which may overshoot
        change = max(abs(step), np.abs(steps).max(), np.abs(new_wrong - wrong).max(), abs(new_missed - missed))
        slope, offset, wrong, missed = slope - scale * step, offset - scale * steps, new_wrong, new_missed
        if change < _TOLERANCE:
            break
    return NoiseModel(float(slope), offset, wrong, missed)


def _error_rates(errors: Floats, absent: Floats, shared: float) -> Floats:
    """ω_c from the expected numbers of wrong tags and of absent pairs of each class, and the last ω."""
    ratio = (errors + SHARED_ERRORS) / (shared * absent + SHARED_ERRORS)
    found: Floats = np.minimum(errors.sum() / max(float(absent @ ratio), 1e-12) * ratio, 0.5)
    return found


def twice_below_median(logits: Floats, tags: NDArray[np.bool_], others: NDArray[np.bool_]) -> int:
    """R: twice the number of tags whose logit is below the median of the others of their class."""
    medians = np.nanmedian(np.where(others, logits, np.nan), axis=0)
    return 2 * int((tags & (logits < medians)).sum())


def _examine(
    logits: NDArray[np.floating], labels: NDArray[np.integer], usable: NDArray[np.bool_]
) -> tuple[Floats, float, float, NDArray[np.int64]]:
    """Suspicion of all annotations, E⁺, κ·R, and the doubted annotations, n×2."""
    z = np.clip(np.asarray(logits, dtype=np.float64), -_MAX_LOGIT, _MAX_LOGIT)
    tags, absent = labels == POSITIVE, labels == NEGATIVE
    suspicion = np.full(z.shape, -np.inf)
    low, hard, chosen = _doubt_tags(z, tags, usable, suspicion)
    with_absent = usable & (absent.sum(0) >= FEWEST)
    if with_absent.any():
        chosen = np.concatenate([chosen, _doubt_absent(z, tags, absent, with_absent, suspicion)])
    return suspicion, low, hard, chosen


def _doubt_tags(
    z: Floats, tags: NDArray[np.bool_], usable: NDArray[np.bool_], suspicion: Floats
) -> tuple[float, float, NDArray[np.int64]]:
    """E⁺, κ·R and the doubted tags, n×2; fills in the suspicion of all tags."""
    candidates = tags & usable
    noise = fit_noise(z, candidates, ~tags & usable)
    log_odds, _ = noise.log_odds(z)
    low = float(sigmoid(log_odds[candidates]).sum())
    hard = HARD * twice_below_median(z, candidates, ~tags)
    halfway = (_log(noise.wrong_tag) - _log(float(noise.wrong_tag.mean()))) / 2
    suspicion[tags] = (log_odds - halfway + noise.log_replaced(z, tags)[:, None])[tags]
    probability = sigmoid(z)
    candidates &= probability <= _class_means(probability, ~tags)
    return low, hard, _most_suspicious(suspicion, candidates, (low - hard) / (1 - HARD) - np.sqrt(low))


def _doubt_absent(
    z: Floats, tags: NDArray[np.bool_], absent: NDArray[np.bool_], usable: NDArray[np.bool_], suspicion: Floats
) -> NDArray[np.int64]:
    """The doubted annotations "absent", n×2; fills in the suspicion of all of them."""
    candidates = absent & usable
    _, log_odds = fit_noise(z, tags & usable, candidates).log_odds(z)
    expected = float(sigmoid(log_odds[candidates]).sum())
    suspicion[absent] = log_odds[absent]
    probability = sigmoid(z)
    candidates &= probability >= _class_means(probability, tags)
    return _most_suspicious(suspicion, candidates, expected - np.sqrt(expected))


def _most_suspicious(suspicion: Floats, candidates: NDArray[np.bool_], number: float) -> NDArray[np.int64]:
    image, label = np.nonzero(candidates)
    order = np.lexsort((label, image, -suspicion[image, label]))[: max(int(number), 0)]
    return np.stack([image[order], label[order]], axis=1)


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


def _log(value: Floats | float) -> Floats:
    return np.log(np.maximum(value, 1e-300))


def _why_no_class(tags: NDArray[np.bool_]) -> str:
    if not tags.any():
        return "nothing is annotated as present"
    enough = np.minimum(tags.sum(0), (~tags).sum(0)) >= FEWEST
    if not enough.any():
        return f"no class has {FEWEST} annotations to compare"
    return "the scores do not separate annotated images from others"
