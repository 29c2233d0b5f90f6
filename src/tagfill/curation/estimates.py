"""How many labels are missing, and how likely each of them is, with or without complete labels.

A logit g of a pair becomes the probability that a new image shows the class by

    p = σ(u),   u = a·g + d·max(g − k, 0) + b_c

Where the labels of a split are complete, a, d, k and b_c are measured (`tagfill.probabilities.calibrate`). Where only
some tags are known, they are estimated together with q, the share of the true tags that were given, from cross-fitted
logits:

**Missing at random.** Each true tag is given with probability q_c and each absent label with probability r, whatever
the image shows (Elkan and Noto, Learning classifiers from only positive and unlabeled data, KDD 2008). A pair is

    known present    q_c·p              known absent    r·(1 − p)
    unknown          p·(1 − q_c) + (1 − p)·(1 − r)

a, d, k, b_c, q_c and r maximize this likelihood (the joint method of Teisseyre, Mielniczuk and Łazęcka, Different
strategies of fitting logistic regression for positive and unlabelled data, ICCS 2020). q is the level at which the
share of known tags among the highest logits flattens out, so it needs a model that is sure of some images. A normal
prior keeps b_c and logit(q_c) of a class with few tags near those of all classes. Images without any label may never
have been annotated: unless the labels of the others explain how many there are, they are left out, and the likelihood
is that of images that kept a label.

**One per image.** One of the n tags of an image is drawn, so a tag is given with probability 1/n. With independent
classes, N the number of other tags, and 1/(1 + N) = ∫₀¹ tᴺ dt,

    P(tag k is given) = p_k · E[1/(1 + N)] = p_k · ∫₀¹ Π_{j≠k} (1 − p_j + p_j·t) dt

**The probability of an unknown pair** is lower than p, because the tags that were found are no longer among them:

    at random        p(1 − q) / (p(1 − q) + (1 − p)(1 − r)),   which is p(1 − q)/(1 − pq) for r = 0
    one per image    p_j ∫ t Π_{i≠j,k} (1 − p_i + p_i·t) dt / ∫ Π_{i≠k} (1 − p_i + p_i·t) dt

**Sharpness.** Estimated log odds are too extreme. Tags alone cannot tell classes that are confused with each other from
classes that occur together, and the offset of a class with few tags is uncertain. So the log odds of unknown pairs are
shrunk, the more the fewer tags t_c are known, and shifted by s, so that the expected number of missing tags is κ times
what it was:

    log odds ← τ_c · log odds + s,   τ_c = τ·√((t_c + 1) / (t_c + 1 + h)),   h = 5

τ is 0.7 and κ is 0.92. With a measured calibration, which knows how sure the model can be about confused classes, they
are 0.9 and 1.
`docs/benchmarks/estimates.md` shows what this does to the precision of added tags.

If labels are missing in a way that depends on how visible an object is, tags alone cannot reveal it, and the number of
missing labels is underestimated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.probabilities import Calibration, sigmoid
from tagfill.rng import generator

MEASURED: Literal["measured"] = "measured"
ESTIMATED: Literal["estimated"] = "estimated"
NOT_CALIBRATED: Literal["none"] = "none"
AT_RANDOM, ONE_PER_IMAGE = "at random", "one per image"

_OFFSET_SPREAD, _GIVEN_SPREAD = 0.5, 0.2  # standard deviations of the priors of δ_c and logit(q_c)
_KNOTS_AT_RANDOM, _KNOTS_ONE_PER_IMAGE = (0.05, 0.4), (0.05, 0.2)  # quantiles of the logits of tags
_RATIOS, _RATIO, _RATIO_SPREAD = (0.3, 2.0), 0.5, 0.3  # of the slopes: bounds, and median and spread of the prior
_SHARPNESS, _SHARPNESS_MEASURED, _SHARPNESS_TAGS = 0.7, 0.9, 5.0  # τ of a class with many tags, and h
_KEPT = 0.92  # κ
_STARTS = (0.3, 0.7)  # of q, of which the best fit is kept
_SINGLE_SHARE = 0.99  # share of tagged images with exactly one tag from which tags are taken as drawn one per image
_PRIOR_TAGS = 20.0  # k: expected tags of a class from which its own share of given tags counts more than that of all
_ROUNDS = 20  # of the weights of images with labels
_ALL_ANNOTATED = 0.8  # share of explained images without labels from which all of them are taken as annotated
_FIT_PAIRS = 1_000_000  # pairs to fit to; of more, the images are sampled
_LEAST_TAGS = 20  # too few to estimate anything
_LEAST_EXPLAINED = 0.5  # expected labels per known tag of tagged images, below which nothing was learned
_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(12))
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # of the integrals over 0…1
_BLOCK = 1 << 16  # pairs at a time, for the posterior of one per image


@dataclass(frozen=True)
class LabelEstimates:
    """What is known about the missing labels of a dataset.

    Attributes:
        calibration: turns logits into probabilities for an image without tags; its `source` says whether it was
            measured on complete labels, estimated from the tags alone, or neither.
        given: L, q: share of the true tags of each class that were given, among the images that have any label.
        absent_given: r: share of the absent labels that were given.
        mechanism: how labels went missing: `at random` or `one per image`.
        annotated_share: share of the images without any known label that an annotator has seen and found nothing in;
            the others were never annotated.
        priors: L, share of images that show each class.
        shift: added to the log odds of unknown pairs of annotated images, so that known and expected labels sum to
            what the probabilities say, however labels went missing (a prior shift; Saerens et al., Adjusting the
            outputs of a classifier to new a priori probabilities, Neural Computation 2002).
        sharpness: L, τ: factors of the log odds of unknown pairs; None changes nothing.
        untagged_shift: added to the log odds of images without labels that were never annotated.
    """

    calibration: Calibration
    given: NDArray[np.float64]
    absent_given: float
    mechanism: str
    annotated_share: float
    priors: NDArray[np.float64]
    shift: float = 0.0
    sharpness: NDArray[np.float64] | None = None
    untagged_shift: float = 0.0

    @property
    def source(self) -> str:
        """`measured` on complete labels, `estimated` from tags alone, or `none`."""
        return self.calibration.source

    @property
    def labels_per_image(self) -> float:
        """Expected number of labels of an image."""
        return float(self.priors.sum())

    @property
    def given_share(self) -> float:
        """Q of all classes together: share of the true tags that were given."""
        weights = self.priors if self.priors.sum() > 0 else np.ones_like(self.priors)
        return float(np.average(self.given, weights=weights))

    def __call__(self, logits: NDArray[np.floating], labels: NDArray[np.integer]) -> NDArray[np.float64]:
        """The probability of each pair, given the known labels of its image; known pairs are 1 or 0.

        Args:
            logits: N×L.
            labels: N×L, 1 present, 0 absent, -1 unknown.
        """
        p = self.calibration(logits)
        tagged = (labels != UNKNOWN).any(1, keepdims=True)
        if self.mechanism == ONE_PER_IMAGE:
            found = _adjusted(probability_beside_drawn(p, labels), self.sharpness, self.shift)
        else:
            found = _adjusted(probability_of_unknown(p, self.given, self.absent_given), self.sharpness, self.shift)
            tagged = tagged | (self.annotated_share == 1)
        lost_all = probability_of_unknown(p, self.given, self.absent_given)
        untagged = self.annotated_share * lost_all + (1 - self.annotated_share) * p
        untagged = _adjusted(untagged, self.sharpness, self.untagged_shift)
        found = np.where(tagged, found, untagged)
        return np.where(labels == POSITIVE, 1.0, np.where(labels == NEGATIVE, 0.0, found))


@dataclass(frozen=True)
class EstimateSummary:
    """Estimates in a few numbers, for users.

    Attributes:
        source: `measured` on complete labels, `estimated` from tags alone, or `none`.
        mechanism: how labels went missing, `at random` or `one per image`.
        given: share of the true tags that were given.
        labels_per_image: expected number of labels of an image.
    """

    source: str
    mechanism: str
    given: float
    labels_per_image: float

    def __str__(self) -> str:
        if self.source == NOT_CALIBRATED:
            return "Probabilities are uncalibrated scores: there is no complete validation split and too few tags"
        origin = "Measured on validation" if self.source == MEASURED else "Estimated from the tags alone"
        return f"{origin}: {self.given:.0%} of the true tags are given, {self.labels_per_image:.2f} labels per image"

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarize(estimates: Sequence[LabelEstimates]) -> EstimateSummary:
    """The mean of the estimates of several models of one dataset."""
    if not estimates:
        return EstimateSummary(NOT_CALIBRATED, AT_RANDOM, 0.0, 0.0)
    return EstimateSummary(
        estimates[0].source,
        estimates[0].mechanism,
        float(np.mean([each.given_share for each in estimates])),
        float(np.mean([each.labels_per_image for each in estimates])),
    )


def probability_of_unknown(
    probability: NDArray[np.floating], given: NDArray[np.floating] | float, absent_given: float = 0.0
) -> NDArray[np.float64]:
    """The probability that an unknown pair is present, if labels are missing at random.

    Args:
        probability: p of an image about which nothing is known.
        given: q, the share of the true tags that were given.
        absent_given: r, the share of the absent labels that were given.

    >>> probability_of_unknown(np.array([0.0, 0.5, 1.0]), 0.5).round(3)  # a third of those at 0.5
    array([0.   , 0.333, 1.   ])
    """
    p = np.asarray(probability, dtype=np.float64)
    missing = p * (1 - np.asarray(given))
    found: NDArray[np.float64] = missing / np.maximum(missing + (1 - p) * (1 - absent_given), 1e-300)
    return found


def probability_beside_drawn(probability: NDArray[np.floating], labels: NDArray[np.integer]) -> NDArray[np.float64]:
    """The probability of each unknown pair, if the known tag of its image was drawn among all of its tags.

    Args:
        probability: N×L, p of an image about which nothing is known.
        labels: N×L; further known tags count as present, and were not drawn.

    >>> p = np.array([[1.0, 0.5]])
    >>> float(probability_beside_drawn(p, np.array([[1, -1]]))[0, 1].round(3))  # half are drawn themselves
    0.333
    """
    found = np.empty(probability.shape)
    step = max(1, _BLOCK // max(probability.shape[1], 1))
    for start in range(0, len(probability), step):
        part = slice(start, start + step)
        p, known = torch.from_numpy(np.asarray(probability[part], dtype=np.float64)), torch.from_numpy(labels[part])
        log_rest, log_factors = _log_integrand(p, known)
        whole = (_WEIGHTS * log_rest.exp()).sum(1)
        with_pair = (_WEIGHTS * _NODES * (log_rest[:, None] - log_factors).exp()).sum(2)
        found[part] = (p * with_pair / whole[:, None].clamp(min=1e-300)).clamp(0, 1).numpy()
    return found


def uncorrected(calibration: Calibration, labels: NDArray[np.integer]) -> LabelEstimates:
    """Estimates for labels about which nothing can be estimated: unknown pairs have the calibrated probability."""
    priors = ((labels == POSITIVE).sum(0) + 1) / (len(labels) + 2)
    return LabelEstimates(calibration, np.zeros(labels.shape[1]), 0.0, AT_RANDOM, 0.0, priors)


def estimate_labels(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> LabelEstimates | None:
    """Estimate calibration, class priors and the share of given tags from tags alone.

    Args:
        logits: N×L, of models that were not trained on these images.
        labels: N×L, 1 present, 0 absent, -1 unknown.

    Returns:
        The estimates; None if fewer than 20 tags are known, or if the logits do not rank them above unknown pairs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(-2, 3, (4000, 3))
        >>> present = rng.random(logits.shape) < sigmoid(logits)
        >>> labels = np.where(present & (rng.random(logits.shape) < 0.4), 1, -1)
        >>> round(estimate_labels(logits, labels).given_share, 1)
        0.4
    """
    tags = (labels == POSITIVE).sum(1)
    if tags.sum() < _LEAST_TAGS:
        return None
    one_each = (tags[tags > 0] == 1).mean() >= _SINGLE_SHARE
    drawn = generator(0, "estimates").permutation(len(labels))[: max(1, _FIT_PAIRS // labels.shape[1])]
    some, known = logits[drawn], labels[drawn]
    if (known == POSITIVE).sum() < _LEAST_TAGS:
        return None
    fitted = (_fit_one_per_image if one_each else _fit_at_random)(some, known)
    if fitted is None:
        return None
    calibration, given, absent_given = fitted
    tagged = (known == POSITIVE).any(1)
    if calibration(some[tagged]).sum() < _LEAST_EXPLAINED * (known == POSITIVE).sum():
        return None  # logits say so little that the likelihood is best if nothing is ever present
    if not one_each and _annotated_share(*fitted, some, known) >= _ALL_ANNOTATED:
        calibration, given, absent_given = _fit_at_random(some, known, all_annotated=True) or fitted
    mechanism = ONE_PER_IMAGE if one_each else AT_RANDOM
    estimates = _complete(calibration, given, absent_given, mechanism, some, known)
    estimates = _sharpen(estimates, some, known, _SHARPNESS, _KEPT)
    return replace(estimates, priors=estimates(logits, labels).mean(0))


def measure_labels(
    calibration: Calibration, logits: NDArray[np.floating], labels: NDArray[np.integer]
) -> LabelEstimates:
    """Class priors and the share of given tags, with a calibration that was measured on complete labels.

        q = known tags / Σ p,   q_c = (known tags of c + q·k) / (Σ p of c + k)

    The log odds of unknown pairs are then shifted, so that their sum and the known tags make Σ p.

    The sum is over all images, or if most images without labels were never annotated, over those with labels, each
    counted 1/P(it keeps a label) times.

    Args:
        calibration: measured on a complete split.
        logits: N×L, of models that were not trained on these images.
        labels: N×L, 1 present, 0 absent, -1 unknown.
    """
    tags = (labels == POSITIVE).sum(1)
    one_each = bool(tags.sum()) and (tags[tags > 0] == 1).mean() >= _SINGLE_SHARE
    mechanism = ONE_PER_IMAGE if one_each else AT_RANDOM
    annotated = (labels != UNKNOWN).any(1)
    p = calibration(logits)
    given, absent_given = _shares_given(p[annotated], labels[annotated])
    if not one_each:
        for _ in range(_ROUNDS):
            weights = 1 / np.maximum(1 - _lost_all(p[annotated], given, absent_given), 1e-3)
            given, absent_given = _shares_given(p[annotated] * weights[:, None], labels[annotated], weights.sum())
        if _annotated_share(calibration, given, absent_given, logits, labels) < _ALL_ANNOTATED:
            estimates = _complete(calibration, given, absent_given, mechanism, logits, labels)
            return _sharpen(estimates, logits, labels, _SHARPNESS_MEASURED)
        annotated = np.ones(len(labels), dtype=bool)
        given, absent_given = _shares_given(p, labels)
    estimates = _complete(calibration, given, absent_given, mechanism, logits, labels)
    found = estimates(logits[annotated], labels[annotated])[labels[annotated] == UNKNOWN]
    shift = _shift_to_sum(_log_odds(found), p[annotated].sum() - tags.sum())
    estimates = _complete(calibration, given, absent_given, mechanism, logits, labels, shift)
    return _sharpen(estimates, logits, labels, _SHARPNESS_MEASURED)


def _adjusted(
    probability: NDArray[np.float64], sharpness: NDArray[np.float64] | None, shift: float
) -> NDArray[np.float64]:
    """Probabilities whose log odds are multiplied by the sharpness of their class and shifted."""
    log_odds = _log_odds(probability)
    return sigmoid((log_odds if sharpness is None else sharpness * log_odds) + shift)


def _log_odds(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    log_odds: NDArray[np.float64] = np.log(p) - np.log1p(-p)
    return log_odds


def _shift_to_sum(log_odds: NDArray[np.float64], total: float) -> float:
    """The change of log odds, at most 4, that gives probabilities this sum."""
    if not len(log_odds):
        return 0.0
    low, high = -4.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sigmoid(log_odds + middle).sum() < total else (low, middle)
    return middle


def _sharpen(
    estimates: LabelEstimates, logits: NDArray[np.floating], labels: NDArray[np.integer], most: float, kept: float = 1.0
) -> LabelEstimates:
    """Shrink the log odds of unknown pairs and keep most of their sum; if many absent labels are known, change nothing.

    Args:
        estimates: of all pairs.
        logits: N×L.
        labels: N×L; as many absent as present ones show which classes are confused.
        most: τ of a class with many tags.
        kept: κ, the share of the expected number that is kept.
    """
    if (labels == NEGATIVE).sum() >= (labels == POSITIVE).sum():
        return estimates
    tags = (labels == POSITIVE).sum(0)
    sharpness = most * np.sqrt((tags + 1) / (tags + 1 + _SHARPNESS_TAGS))
    unknown, tagged = labels == UNKNOWN, (labels != UNKNOWN).any(1) | (estimates.annotated_share == 1)
    expected, log_odds = estimates(logits, labels), _log_odds(replace(estimates, shift=0.0)(logits, labels))
    shifts = [
        _shift_to_sum((sharpness * log_odds[rows])[unknown[rows]], kept * expected[rows][unknown[rows]].sum())
        for rows in (tagged, ~tagged)
    ]
    shrunk = replace(estimates, sharpness=sharpness, shift=shifts[0], untagged_shift=shifts[1])
    return replace(shrunk, priors=shrunk(logits, labels).mean(0) if len(logits) else estimates.priors)


def _shares_given(
    p: NDArray[np.float64], labels: NDArray[np.integer], images: float | None = None
) -> tuple[NDArray[np.float64], float]:
    """Q of each class and r, from probabilities and known labels of images."""
    expected, known = p.sum(0), (labels == POSITIVE).sum(0)
    overall = known.sum() / max(expected.sum(), known.sum(), 1e-12)
    given = np.clip((known + overall * _PRIOR_TAGS) / (expected + _PRIOR_TAGS), 0, 1 - 1e-6)
    absent = (len(labels) if images is None else images) * p.shape[1] - expected.sum()
    return given, float(np.clip((labels == NEGATIVE).sum() / max(absent, 1e-12), 0, 1 - 1e-6))


@dataclass(frozen=True)
class Additions:
    """Unknown pairs to add as tags, and what to expect of them.

    Attributes:
        mask: N×L, the pairs to add.
        threshold: probability from which pairs are added; infinity if none reaches the precision.
        expected_precision: share of the added pairs that are expected to be right; NaN if none is added.
        expected_found: share of the missing tags that are expected to be among the added pairs.
        expected_missing: number of tags that are expected to be missing before anything is added.
    """

    mask: NDArray[np.bool_]
    threshold: float
    expected_precision: float
    expected_found: float
    expected_missing: float


def choose_additions(
    probability: NDArray[np.floating], labels: NDArray[np.integer], *, precision: float = 0.9
) -> Additions:
    """Choose as many unknown pairs as possible of which a given share is expected to be present.

    Args:
        probability: N×L, of the pairs, as `LabelEstimates` gives them.
        labels: N×L, 1 present, 0 absent, -1 unknown; only unknown pairs are added.
        precision: the least expected share of added pairs that are present, between 0 and 1.

    >>> added = choose_additions(np.array([[0.99, 0.95, 0.8, 0.1]]), np.full((1, 4), -1), precision=0.9)
    >>> added.mask, added.threshold, round(added.expected_precision, 3)
    (array([[ True,  True,  True, False]]), 0.8, 0.913)
    """
    unknown = labels == UNKNOWN
    p = np.asarray(probability, dtype=np.float64)
    ranked = np.sort(p[unknown])[::-1]
    total = ranked.sum()
    enough = np.flatnonzero(np.cumsum(ranked) >= precision * np.arange(1, len(ranked) + 1))
    threshold = float(ranked[enough[-1]]) if len(enough) else float("inf")
    mask = unknown & (p >= threshold)
    found = p[mask].sum()
    return Additions(
        mask=mask,
        threshold=threshold,
        expected_precision=float(found / mask.sum()) if mask.any() else float("nan"),
        expected_found=float(found / total) if total > 0 else 0.0,
        expected_missing=float(total),
    )


# Fitting


_Fitted = tuple[Calibration, NDArray[np.float64], float]


def _fit_at_random(
    logits: NDArray[np.floating], labels: NDArray[np.integer], *, all_annotated: bool = False
) -> _Fitted | None:
    """Calibration, q of each class and r; from images with a known label, or from all if all were annotated."""
    tagged = (labels != UNKNOWN).any(1) | all_annotated
    link = _Link(logits[tagged], labels[tagged], _KNOTS_AT_RANDOM)
    known = torch.from_numpy(labels[tagged])
    fits = [_fit_from(start, link, known, all_annotated) for start in _STARTS]
    found = [(value, *fitted) for value, fitted in fits if fitted is not None]
    return min(found, key=lambda fit: fit[0])[1:] if found else None


def _fit_from(start: float, link: _Link, known: Tensor, all_annotated: bool) -> tuple[float, _Fitted | None]:
    """The negative log-likelihood and the fit that is reached from a value of q."""
    absent = known == NEGATIVE
    any_absent = bool(absent.any())
    link.reset(-np.log(start))
    level, spread = _parameter(np.log(start / (1 - start))), _parameter(np.zeros(known.shape[1]))
    absent_level = _parameter(np.log(float(absent.double().mean()) + 1e-6))

    def loss() -> Tensor:
        likelihood = _log_likelihood_at_random(
            link.logits(), known, level + spread, absent_level if any_absent else None, all_annotated=all_annotated
        )
        return -likelihood.sum() + link.penalty() + (spread**2).sum() / (2 * _GIVEN_SPREAD**2)

    value = _minimize([*link.parameters, level, spread, *([absent_level] if any_absent else [])], loss)
    calibration = link.calibration()
    if calibration is None or not np.isfinite(value):
        return value, None
    given = sigmoid((level + spread).detach().numpy())
    return value, (calibration, given, float(sigmoid(absent_level.item())) if any_absent else 0.0)


def _log_likelihood_at_random(
    u: Tensor, known: Tensor, given: Tensor, absent_given: Tensor | None, *, all_annotated: bool
) -> Tensor:
    """Of each image with labels: log odds u (N×L), logit(q) (L) and logit(r); None for r = 0."""
    log_p, log_not = logsigmoid(u), logsigmoid(-u)
    log_absent = log_not if absent_given is None else log_not + logsigmoid(absent_given)
    log_kept_back = log_not if absent_given is None else log_not + logsigmoid(-absent_given)
    log_unknown = torch.logaddexp(log_p + logsigmoid(-given), log_kept_back)
    terms = torch.where(known == NEGATIVE, log_absent, log_unknown)
    terms = torch.where(known == POSITIVE, log_p + logsigmoid(given), terms).sum(1)
    if all_annotated:
        return terms
    return terms - torch.log(-torch.expm1(log_unknown.sum(1).clamp(max=-1e-9)))  # images without labels are not there


def _log_likelihood_one_per_image(u: Tensor, known: Tensor) -> Tensor:
    """Of the drawn tag of each image, which has at least one: log odds u (N×L)."""
    present, absent = known == POSITIVE, known == NEGATIVE
    u = u.masked_fill(absent, -torch.inf)
    log_rest, _ = _log_integrand(torch.sigmoid(u), known)
    drawn = torch.where(present, logsigmoid(u), 0.0).sum(1) + (_WEIGHTS * log_rest.exp()).sum(1).log()
    none = torch.where(absent, 0.0, logsigmoid(-u)).sum(1).clamp(max=-1e-9)
    return drawn - torch.log(-torch.expm1(none))


def _fit_one_per_image(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> _Fitted | None:
    """Calibration, expected q of each class and r, from the images with exactly one tag."""
    single = (labels == POSITIVE).sum(1) == 1
    link = _Link(logits[single], labels[single], _KNOTS_ONE_PER_IMAGE)
    known = torch.from_numpy(labels[single])
    link.reset(0.0)
    _minimize(link.parameters, lambda: link.penalty() - _log_likelihood_one_per_image(link.logits(), known).sum())
    calibration = link.calibration()
    if calibration is None:
        return None
    found = probability_beside_drawn(calibration(logits[single]), labels[single])
    missing = np.where(labels[single] == UNKNOWN, found, 0.0).sum(0)
    tags = (labels[single] == POSITIVE).sum(0)
    overall = tags.sum() / (tags.sum() + missing.sum())
    given = (tags + overall * _PRIOR_TAGS) / (tags + missing + _PRIOR_TAGS)
    return calibration, given, 0.0


def _log_integrand(p: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Log tᵐ⁻¹ Π (1 − p + p·t) over the unknown pairs of images with m tags (N×K), and each factor (N×L×K)."""
    factors = torch.log1p(-p[:, :, None] * (1 - _NODES)) * (known == UNKNOWN)[:, :, None]
    others = ((known == POSITIVE).sum(1) - 1).clamp(min=0)
    return factors.sum(1) + others[:, None] * _NODES.log(), factors


def _complete(
    calibration: Calibration,
    given: NDArray[np.float64],
    absent_given: float,
    mechanism: str,
    logits: NDArray[np.floating],
    labels: NDArray[np.integer],
    shift: float = 0.0,
) -> LabelEstimates:
    """Add the share of annotated images among those without labels, and the class priors."""
    annotated_share = 0.0
    if mechanism == AT_RANDOM:
        annotated_share = _annotated_share(calibration, given, absent_given, logits, labels)
        annotated_share = 1.0 if annotated_share >= _ALL_ANNOTATED else annotated_share
    none = np.zeros_like(given)
    estimates = LabelEstimates(calibration, given, absent_given, mechanism, annotated_share, none, shift)
    return replace(estimates, priors=estimates(logits, labels).mean(0) if len(logits) else none)


def _annotated_share(
    calibration: Calibration,
    given: NDArray[np.float64],
    absent_given: float,
    logits: NDArray[np.floating],
    labels: NDArray[np.integer],
) -> float:
    """How many of the images without a known label are explained by images that lost all of their labels."""
    tagged = (labels != UNKNOWN).any(1)
    if tagged.all():
        return 1.0
    nothing = _lost_all(calibration(logits[tagged]), given, absent_given)
    return float(min(1.0, (nothing / np.maximum(1 - nothing, 1e-6)).sum() / (~tagged).sum()))


def _lost_all(p: NDArray[np.float64], given: NDArray[np.float64] | float, absent_given: float) -> NDArray[np.float64]:
    """N: probability that no label of an image was given."""
    unknown = np.maximum(p * (1 - given) + (1 - p) * (1 - absent_given), 1e-300)
    nothing: NDArray[np.float64] = np.exp(np.log(unknown).sum(1))
    return nothing


class _Link:
    """Log odds as parameters to fit: slopes s⁻ and s⁺ below and above a knot k, and an offset b + δ_c per class.

        u = s⁺·max(g − k, 0) + s⁻·min(g − k, 0) + b + δ_c

    Tags alone say little about the shape, so it is bounded: k lies between two quantiles of the logits of known tags,
    and s⁺/s⁻ between 0.3 and 2 with a prior at 0.5, where complete labels of photos and scenes put it. Without
    bounds, the likelihood may be best where every class excludes all others, and nothing is missing.
    """

    def __init__(self, logits: NDArray[np.floating], labels: NDArray[np.integer], knots: tuple[float, float]) -> None:
        values = np.asarray(logits, dtype=np.float64)
        tags = values[labels == POSITIVE]
        self._center, self._scale = float(np.median(tags)), float(max(values.std(), 1e-9))
        self._logits = torch.from_numpy((values - self._center) / self._scale)
        self._low, self._high = ((np.quantile(tags, knots) - self._center) / self._scale).tolist()
        self._width = values.shape[1]
        self.reset(0.0)

    def reset(self, offset: float) -> None:
        """Begin again: with offset 0, a tag at the knot has a probability of ¼."""
        self._log_slope, self._offset = _parameter(np.log(1.5)), _parameter(min(offset, 2.0) - 1.0)
        self._knot, self._ratio, self._deltas = _parameter(0.0), _parameter(-1.0), _parameter(np.zeros(self._width))

    @property
    def parameters(self) -> list[Tensor]:
        return [self._log_slope, self._offset, self._knot, self._ratio, self._deltas]

    def _shape(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Knot, s⁻, s⁺ and log s⁺/s⁻."""
        low, high = np.log(_RATIOS[0]), np.log(_RATIOS[1])
        log_ratio = low + (high - low) * torch.sigmoid(self._ratio)
        upper = self._log_slope.exp()
        knot = self._low + (self._high - self._low) * torch.sigmoid(self._knot)
        return knot, upper * torch.exp(-log_ratio), upper, log_ratio

    def logits(self) -> Tensor:
        knot, lower, upper, _ = self._shape()
        beyond = self._logits - knot
        return upper * beyond.clamp(min=0) + lower * beyond.clamp(max=0) + self._offset + self._deltas

    def penalty(self) -> Tensor:
        """Of normal priors of δ_c and of log s⁺/s⁻, and weak ones of what separable labels leave without a limit."""
        *_, log_ratio = self._shape()
        priors: Tensor = (self._deltas**2).sum() / (2 * _OFFSET_SPREAD**2)
        priors = priors + (log_ratio - np.log(_RATIO)) ** 2 / (2 * _RATIO_SPREAD**2)
        weak: Tensor = 1e-2 * self._log_slope**2 + 0.1 * self._knot**2
        return priors + weak

    def calibration(self) -> Calibration | None:
        """The fitted calibration; None if logits say next to nothing about the tags."""
        knot, lower, upper, _ = (float(value.detach()) for value in self._shape())
        offset = (self._offset + self._deltas).detach().numpy() - lower * (knot + self._center / self._scale)
        if not np.isfinite(offset).all() or not 1e-2 < upper < 1e4:
            return None
        return Calibration(
            slope=lower / self._scale,
            offset=tuple(offset.tolist()),
            source=ESTIMATED,
            bend=(upper - lower) / self._scale,
            knot=self._center + knot * self._scale,
        )


def _parameter(value: float | NDArray[np.float64]) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def _minimize(parameters: list[Tensor], loss: Callable[[], Tensor]) -> float:
    """Minimize by L-BFGS; return the minimum."""
    optimizer = torch.optim.LBFGS(
        parameters, max_iter=200, tolerance_grad=1e-7, tolerance_change=1e-10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return float(loss())
