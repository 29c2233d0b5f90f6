"""The probability of the labels that an image lacks, given the tags that it has.

A calibration says how probable a label is in an image about which nothing is known, p. If some tags of the image were
given, the labels that were not are less probable, because the tags that were found are no longer among them. With q the
share of the true tags that were given, and r the share of the absent labels,

    at random        p(1 − q) / (p(1 − q) + (1 − p)(1 − r)),   which is p(1 − q)/(1 − pq) for r = 0
    one per image    p_j ∫ t Π_{i≠j,k} (1 − p_i + p_i·t) dt / ∫ Π_{i≠k} (1 − p_i + p_i·t) dt

`measure_labels` measures q with a calibration, and `tagfill.inference.estimates`, which explains the formulas,
estimates both from tags alone. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.probabilities import Calibration, sigmoid

AT_RANDOM, ONE_PER_IMAGE = "at random", "one per image"

_SHARPNESS_MEASURED, _SHARPNESS_TAGS = 0.9, 2.0  # τ, and tags that halve τ² of a class
_SINGLE_SHARE = 0.99  # share of tagged images with exactly one tag from which tags are taken as drawn one per image
PRIOR_TAGS = 20.0  # k: expected tags of a class from which its own share of given tags counts more than that of all
_ROUNDS = 20  # of the weights of images with labels
ALL_ANNOTATED = 0.8  # share of explained images without labels from which all of them are taken as annotated
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
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
        new_sharpness: factor of the log odds of images about which nothing is known.
        new_shift: added to them.
    """

    calibration: Calibration
    given: NDArray[np.float64]
    absent_given: float
    mechanism: str
    annotated_share: float
    priors: NDArray[np.float64]
    shift: float = 0.0
    sharpness: NDArray[np.float64] | None = None
    new_sharpness: float = 1.0
    new_shift: float = 0.0

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

    @property
    def for_new_images(self) -> Calibration:
        """The calibration for images about which nothing is known, to save with a model."""
        return self.calibration.adjusted(self.new_sharpness, self.new_shift)

    def expected_untagged(self, logits: NDArray[np.floating]) -> float:
        """The number of images that lost all of their labels, for these images, which kept one."""
        if self.mechanism == ONE_PER_IMAGE:
            return 0.0
        return _expected_untagged(self.calibration(logits), self.given, self.absent_given)

    def __call__(self, logits: NDArray[np.floating], labels: NDArray[np.integer]) -> NDArray[np.float64]:
        """The probability of each pair, given the known labels of its image; known pairs are 1 or 0.

        Args:
            logits: N×L.
            labels: N×L, 1 present, 0 absent, -1 unknown.
        """
        p = self.calibration(logits)
        if self.mechanism == ONE_PER_IMAGE:
            found = probability_beside_drawn(p, labels)
        else:
            found = probability_of_unknown(p, self.given, self.absent_given)
        found = _adjusted(found, self.sharpness, self.shift)
        untagged = self.annotated_share * found + (1 - self.annotated_share) * self.for_new_images(logits)
        found = np.where((labels != UNKNOWN).any(1, keepdims=True), found, untagged)
        return np.where(labels == POSITIVE, 1.0, np.where(labels == NEGATIVE, 0.0, found))


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
        p, known = np.asarray(probability[part], dtype=np.float64), labels[part]
        log_factors = np.log1p(-p[:, :, None] * (1 - _NODES)) * (known == UNKNOWN)[:, :, None]
        others = np.maximum((known == POSITIVE).sum(1) - 1, 0)
        log_rest = log_factors.sum(1) + others[:, None] * np.log(_NODES)
        whole = (_WEIGHTS * np.exp(log_rest)).sum(1)
        with_pair = (_WEIGHTS * _NODES * np.exp(log_rest[:, None] - log_factors)).sum(2)
        found[part] = np.clip(p * with_pair / np.maximum(whole, 1e-300)[:, None], 0, 1)
    return found


def uncorrected(calibration: Calibration, labels: NDArray[np.integer]) -> LabelEstimates:
    """Estimates for labels about which nothing can be estimated: unknown pairs have the calibrated probability."""
    priors = ((labels == POSITIVE).sum(0) + 1) / (len(labels) + 2)
    return LabelEstimates(calibration, np.zeros(labels.shape[1]), 0.0, AT_RANDOM, 0.0, priors)


def drawn_one_each(labels: NDArray[np.integer]) -> bool:
    """Whether tagged images have one tag each, so that it is taken as drawn among all tags of its image.

    >>> drawn_one_each(np.array([[1, -1], [-1, 1], [-1, -1]]))
    True
    """
    tags = (labels == POSITIVE).sum(1)
    return bool(tags.sum()) and bool((tags[tags > 0] == 1).mean() >= _SINGLE_SHARE)


def measure_labels(
    calibration: Calibration, logits: NDArray[np.floating], labels: NDArray[np.integer]
) -> LabelEstimates:
    """Class priors and the share of given tags, with a calibration for images about which nothing is known.

        q = known tags / Σ p,   q_c = (known tags of c + q·k) / (Σ p of c + k)

    The log odds of unknown pairs are then shifted, so that their sum and the known tags make Σ p.

    The sum is over all images, or if most images without labels were never annotated, over those with labels, each
    counted 1/P(it keeps a label) times.

    Args:
        calibration: measured on a complete split, or saved with a model of `fill`.
        logits: N×L, of models that were not trained on these images.
        labels: N×L, 1 present, 0 absent, -1 unknown.
    """
    tags = (labels == POSITIVE).sum(1)
    one_each, most = drawn_one_each(labels), _SHARPNESS_MEASURED if calibration.source == "measured" else None
    mechanism = ONE_PER_IMAGE if one_each else AT_RANDOM
    annotated = (labels != UNKNOWN).any(1)
    p = calibration(logits)
    given, absent_given = _shares_given(p[annotated], labels[annotated])
    if not one_each:
        for _ in range(_ROUNDS):
            weights = 1 / np.maximum(1 - _lost_all(p[annotated], given, absent_given), 1e-3)
            given, absent_given = _shares_given(p[annotated] * weights[:, None], labels[annotated], weights.sum())
        if annotated_share(calibration, given, absent_given, logits, labels) < ALL_ANNOTATED:
            estimates = complete_estimates(calibration, given, absent_given, mechanism, logits, labels)
            return estimates if most is None else sharpen(estimates, logits, labels, most)
        annotated = np.ones(len(labels), dtype=bool)
        given, absent_given = _shares_given(p, labels)
    estimates = complete_estimates(calibration, given, absent_given, mechanism, logits, labels)
    found = estimates(logits[annotated], labels[annotated])[labels[annotated] == UNKNOWN]
    shift = _shift_to_sum(_log_odds(found), p[annotated].sum() - tags.sum())
    estimates = complete_estimates(calibration, given, absent_given, mechanism, logits, labels, shift)
    return estimates if most is None else sharpen(estimates, logits, labels, most)


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


def sharpen(
    estimates: LabelEstimates,
    logits: NDArray[np.floating],
    labels: NDArray[np.integer],
    most: float,
    *,
    kept: float = 1.0,
    new: float = 1.0,
) -> LabelEstimates:
    """Shrink the log odds of unknown pairs and keep most of their sum; if many absent labels are known, change nothing.

    Args:
        estimates: of all pairs.
        logits: N×L.
        labels: N×L; as many absent as present ones show which classes are confused.
        most: τ of a class with many tags.
        kept: κ, the share of the expected number that is kept.
        new: τ of images about which nothing is known.
    """
    if (labels == NEGATIVE).sum() >= (labels == POSITIVE).sum():
        return estimates
    tags = (labels == POSITIVE).sum(0)
    sharpness = most * np.sqrt((tags + 1) / (tags + 1 + _SHARPNESS_TAGS))
    unknown, tagged = labels == UNKNOWN, (labels != UNKNOWN).any(1) | (estimates.annotated_share == 1)
    expected, log_odds = estimates(logits, labels), _log_odds(replace(estimates, shift=0.0)(logits, labels))
    missing = expected[tagged][unknown[tagged]].sum()
    shift = _shift_to_sum((sharpness * log_odds[tagged])[unknown[tagged]], kept * missing)
    shrunk = replace(estimates, sharpness=sharpness, shift=shift)
    if new != 1:
        p = estimates.calibration(logits[tagged])
        share = (tags.sum() + kept * missing) / max(tags.sum() + missing, 1e-12)  # of all labels, given ones too
        new_shift = _shift_to_sum((new * _log_odds(p)).ravel(), share * p.sum())
        shrunk = replace(shrunk, new_sharpness=new, new_shift=new_shift)
    return replace(shrunk, priors=shrunk(logits, labels).mean(0) if len(logits) else estimates.priors)


def _shares_given(
    p: NDArray[np.float64], labels: NDArray[np.integer], images: float | None = None
) -> tuple[NDArray[np.float64], float]:
    """Q of each class and r, from probabilities and known labels of images."""
    expected, known = p.sum(0), (labels == POSITIVE).sum(0)
    overall = known.sum() / max(expected.sum(), known.sum(), 1e-12)
    given = np.clip((known + overall * PRIOR_TAGS) / (expected + PRIOR_TAGS), 0, 1 - 1e-6)
    absent = (len(labels) if images is None else images) * p.shape[1] - expected.sum()
    return given, float(np.clip((labels == NEGATIVE).sum() / max(absent, 1e-12), 0, 1 - 1e-6))


def complete_estimates(
    calibration: Calibration,
    given: NDArray[np.float64],
    absent_given: float,
    mechanism: str,
    logits: NDArray[np.floating],
    labels: NDArray[np.integer],
    shift: float = 0.0,
) -> LabelEstimates:
    """Add the share of annotated images among those without labels, and the class priors."""
    share = 0.0
    if mechanism == AT_RANDOM:
        share = annotated_share(calibration, given, absent_given, logits, labels)
        share = 1.0 if share >= ALL_ANNOTATED else share
    none = np.zeros_like(given)
    estimates = LabelEstimates(calibration, given, absent_given, mechanism, share, none, shift)
    return replace(estimates, priors=estimates(logits, labels).mean(0) if len(logits) else none)


def annotated_share(
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
    return min(1.0, _expected_untagged(calibration(logits[tagged]), given, absent_given) / int((~tagged).sum()))


def _expected_untagged(p: NDArray[np.float64], given: NDArray[np.float64], absent_given: float) -> float:
    """How many images lost all of their labels, for images that kept one."""
    nothing = _lost_all(p, given, absent_given)
    return float((nothing / np.maximum(1 - nothing, 1e-6)).sum())


def _lost_all(p: NDArray[np.float64], given: NDArray[np.float64] | float, absent_given: float) -> NDArray[np.float64]:
    """N: probability that no label of an image was given."""
    unknown = np.maximum(p * (1 - given) + (1 - p) * (1 - absent_given), 1e-300)
    nothing: NDArray[np.float64] = np.exp(np.log(unknown).sum(1))
    return nothing
