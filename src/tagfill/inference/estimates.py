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
what it was. With T tags of L classes in all, and m missing tags expected per tagged image,

    log odds ← τ_c · log odds + s,   τ_c = τ·√((t_c + 1) / (t_c + 3)) · T/(T + L)

    at random        τ = 0.78,   κ = 0.98 · T/(T + L)
    one per image    τ = 0.86,   κ = (1 − 0.15/m) · T/(T + L),   but no less than half of T/(T + L)

If each image has one tag, an image has about as many confusions whether it misses many tags or few, so they weigh more
the smaller m is. With a measured calibration, which knows how sure the model can be about confused classes, τ is 0.9,
and T/(T + L) and κ are 1. Images about which nothing is known still have the tags that are easily seen: for these τ_c
is 0.9 · T/(T + L), and 1 with a measured calibration.
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

from tagfill.inference.missing_tags import (
    ALL_ANNOTATED,
    AT_RANDOM,
    ONE_PER_IMAGE,
    PRIOR_TAGS,
    LabelEstimates,
    annotated_share,
    complete_estimates,
    drawn_one_each,
    measure_labels,
    probability_beside_drawn,
    probability_of_unknown,
    sharpen,
    uncorrected,
)
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.probabilities import Calibration, sigmoid
from tagfill.rng import generator

MEASURED: Literal["measured"] = "measured"
ESTIMATED: Literal["estimated"] = "estimated"
NOT_CALIBRATED: Literal["none"] = "none"

__all__ = [
    "Additions",
    "EstimateSummary",
    "LabelEstimates",
    "choose_additions",
    "estimate_labels",
    "learn_weights",
    "measure_labels",
    "probability_beside_drawn",
    "probability_of_unknown",
    "summarize",
    "uncorrected",
]

_OFFSET_SPREAD, _GIVEN_SPREAD = 0.5, 0.2  # standard deviations of the priors of δ_c and logit(q_c)
_KNOTS_AT_RANDOM, _KNOTS_ONE_PER_IMAGE = (0.05, 0.4), (0.15, 0.15)  # quantiles of the logits of tags
_RATIOS, _RATIO, _RATIO_SPREAD = (0.3, 2.0), 0.5, 0.3  # of the slopes: bounds, and median and spread of the prior
_SHARPNESS = {AT_RANDOM: 0.78, ONE_PER_IMAGE: 0.86}  # τ
_KEPT = 0.98  # κ with many tags, if they are missing at random
CONFUSED = 0.15  # pairs per image with one tag that look like missing tags and are confusions
_SHARPNESS_NEW = 0.9  # τ of images about which nothing is known
_STARTS = (0.3, 0.7)  # of q, of which the best fit is kept
_FIT_PAIRS = 1_000_000  # pairs to fit to; of more, the images are sampled
_WEIGHT_PAIRS, _WEIGHT_SPREAD = 200_000, 1.0  # pairs to learn weights from, and spread of their prior around equal ones
_LEAST_TAGS, _LEAST_PER_CLASS, _ENOUGH_TAGS = 20, 5, 1000  # nothing is estimated from fewer, or fewer per class
_LEAST_EXPLAINED = 0.5  # expected labels per known tag of tagged images, below which nothing was learned
_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(12))
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # of the integrals over 0…1


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


def estimate_labels(
    logits: NDArray[np.floating], labels: NDArray[np.integer], *, confused: float = CONFUSED
) -> LabelEstimates | None:
    """Estimate calibration, class priors and the share of given tags from tags alone.

    Args:
        logits: N×L, of models that were not trained on these images.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        confused: pairs per image that look like missing tags and are confusions, if each image has one tag.

    Returns:
        The estimates; None if the logits do not rank known tags above unknown pairs, or if too few tags are known:
        fewer than 20, or fewer than 5 per class unless there are 1,000.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(-2, 3, (4000, 3))
        >>> present = rng.random(logits.shape) < sigmoid(logits)
        >>> labels = np.where(present & (rng.random(logits.shape) < 0.4), 1, -1)
        >>> round(estimate_labels(logits, labels).given_share, 1)
        0.4
    """
    tags = (labels == POSITIVE).sum(1)
    if tags.sum() < least_tags(labels.shape[1]):
        return None
    one_each = drawn_one_each(labels)
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
    if not one_each and annotated_share(*fitted, some, known) >= ALL_ANNOTATED:
        calibration, given, absent_given = _fit_at_random(some, known, all_annotated=True) or fitted
    mechanism = ONE_PER_IMAGE if one_each else AT_RANDOM
    estimates = complete_estimates(calibration, given, absent_given, mechanism, some, known)
    trust = tags.sum() / (tags.sum() + labels.shape[1])
    kept = _KEPT
    if one_each:
        missing = float(estimates(some, known)[tagged][known[tagged] == UNKNOWN].sum()) / tagged.sum()
        kept = max(1 - confused / max(missing, 1e-12), 0.5)
    sharpness = _SHARPNESS[mechanism] * trust
    estimates = sharpen(estimates, some, known, sharpness, kept=kept * trust, new=_SHARPNESS_NEW * trust)
    return replace(estimates, priors=estimates(logits, labels).mean(0))


def least_tags(classes: int) -> int:
    """How many known tags it takes to estimate anything from tags alone.

    >>> least_tags(2), least_tags(20), least_tags(5000)
    (20, 100, 1000)
    """
    return max(_LEAST_TAGS, min(_LEAST_PER_CLASS * classes, _ENOUGH_TAGS))


def learn_weights(channels: NDArray[np.floating], labels: NDArray[np.integer]) -> NDArray[np.float64] | None:
    """Learn how much several scores of the same pairs are worth, from tags alone.

        u = link(Σ_k w_k·g_k),   w_k ≥ 0,   Σ_k w_k = 1

    The weights maximize the likelihood of the known labels together with the link, under weak priors.

    Args:
        channels: N×L×K, scores of about the same scale, none of which was trained on the labels of these images.
        labels: N×L, 1 present, 0 absent, -1 unknown.

    Returns:
        K weights that sum to one; None if too few tags are known.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> good, noise = rng.normal(-2, 2, (2, 3000, 3))
        >>> present = rng.random(good.shape) < sigmoid(2 * good)
        >>> labels = np.where(present & (rng.random(good.shape) < 0.5), 1, -1)
        >>> learn_weights(np.stack([good, noise], axis=2), labels).round(1).tolist()
        [1.0, 0.0]
    """
    tags = labels == POSITIVE
    if tags.sum() < least_tags(labels.shape[1]):
        return None
    one_each = drawn_one_each(labels)
    useful = np.flatnonzero(tags.sum(1) == 1 if one_each else (labels != UNKNOWN).any(1))
    order = generator(0, "weights").permutation(len(useful))[: max(1, _WEIGHT_PAIRS // labels.shape[1])]
    drawn = np.sort(useful[order])
    known = torch.from_numpy(labels[drawn])
    link = _Mixture(channels[drawn], labels[drawn], _KNOTS_ONE_PER_IMAGE if one_each else _KNOTS_AT_RANDOM)
    if one_each:
        _minimize(link.parameters, lambda: link.penalty() - _log_likelihood_one_per_image(link.logits(), known).sum())
    else:
        _fit_from(sum(_STARTS) / 2, link, known, all_annotated=False)
    weights = np.maximum(link.weights.detach().numpy(), 0.0)
    return weights / weights.sum() if np.isfinite(weights).all() and weights.sum() > 0 else None


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
    given = (tags + overall * PRIOR_TAGS) / (tags + missing + PRIOR_TAGS)
    return calibration, given, 0.0


def _log_integrand(p: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Log tᵐ⁻¹ Π (1 − p + p·t) over the unknown pairs of images with m tags (N×K), and each factor (N×L×K)."""
    factors = torch.log1p(-p[:, :, None] * (1 - _NODES)) * (known == UNKNOWN)[:, :, None]
    others = ((known == POSITIVE).sum(1) - 1).clamp(min=0)
    return factors.sum(1) + others[:, None] * _NODES.log(), factors


class _Link:
    """Log odds as parameters to fit: slopes s⁻ and s⁺ below and above a knot k, and an offset b + δ_c per class.

        u = s⁺·max(g − k, 0) + s⁻·min(g − k, 0) + b + δ_c

    Tags alone say little about the shape, so it is bounded: k lies between two quantiles of the logits of known tags,
    or at the quantile 0.15 if each image has one tag, which says too little to choose; s⁺/s⁻ lies between 0.3 and 2
    with a prior at 0.5, where complete labels of photos and scenes put it. Without bounds, the likelihood may be best
    where every class excludes all others, and nothing is missing.
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


class _Mixture(_Link):
    """Log odds of a weighted sum of channels (N×L×K), whose weights are parameters too."""

    def __init__(self, channels: NDArray[np.floating], labels: NDArray[np.integer], knots: tuple[float, float]) -> None:
        self._count = channels.shape[2]
        super().__init__(channels.mean(2), labels, knots)
        self._channels = torch.from_numpy(np.asarray(channels, dtype=np.float64))

    def reset(self, offset: float) -> None:
        super().reset(offset)
        self.weights = _parameter(np.full(self._count, 1 / self._count))

    @property
    def parameters(self) -> list[Tensor]:
        return [*super().parameters, self.weights]

    def logits(self) -> Tensor:
        self._logits = (self._channels @ self.weights - self._center) / self._scale
        return super().logits()

    def penalty(self) -> Tensor:
        equal: Tensor = ((self.weights - 1 / self._count) ** 2).sum() / (2 * _WEIGHT_SPREAD**2)
        return super().penalty() + equal


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
