"""Debiasing: make the raw scores of a tagger comparable between classes and images, and turn them into probabilities.

A tagger prefers some classes whatever the image shows, and gives some images high scores for everything. So scores x,
as log odds where their scale allows it, are standardized (`standardize`):

    x_ic = m_c + r_i + e_ic,   z_ic = e_ic / s_c

m_c is the mean of a class, r_i that of an image, shrunk towards zero if few of its classes are scored, and s_c the
spread of a class, shrunk towards that of all classes. Missing pairs take no part. r_i stays in z where scores are
probabilities of each class on its own, because images with many labels have many high ones.

Several pieces of evidence become one score z = Σ_k w_k·z_k, with weights from the likelihood of the known labels
(`tagfill.inference.estimates.learn_weights`). The probability of a pair is then σ of a line with a bend and an offset
per class in z, fitted to what is known:

- known tags, with or without known absent labels: the likelihood of how tags went missing
  (`tagfill.inference.estimates.estimate_labels`), in which the offsets match the prevalence of the classes;
- nothing, or too little: the slope is a constant and one offset gives the stated number of labels per image.

With a stated number of labels per image, log odds are shifted so that probabilities sum to it in either case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.evidence.scores import Evidence, ScoreMatrix
from tagfill.inference.missing_tags import LabelEstimates, uncorrected
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.probabilities import Calibration
from tagfill.rng import generator

EXPECTED_LABELS = 1.5  # per image, if nothing is known and nothing is stated
_SLOPE = 1.5  # of standardized scores, where nothing is known; right for the ImageNet prior, cautious for CLIP
_SMALLEST = 1e-6  # of probabilities, before their log odds
_ROUNDS = 10  # of the means of classes and images
_IMAGE_PRIOR, _CLASS_PRIOR = 1.0, 20.0  # scores that halve the mean of an image with gaps, and a class's own spread
_FIT_PAIRS = 1_000_000  # pairs to fit to; of more, the images are sampled
_TRUST_TAGS = 10.0  # known tags of a class that count as much as those of all classes together


def to_log_odds(values: NDArray[np.floating], scale: str) -> NDArray[np.float64]:
    """Scores on a scale on which they can be added: log odds, logarithms, or unchanged.

    >>> to_log_odds(np.array([0.5, 0.9]), "probabilities").round(2).tolist()
    [0.0, 2.2]
    """
    x = np.asarray(values, dtype=np.float64)
    if scale == "probabilities":
        p = np.clip(x, _SMALLEST, 1 - _SMALLEST)
        return np.asarray(np.log(p) - np.log1p(-p))
    return np.log(np.maximum(x, _SMALLEST)) if scale == "softmax" else x


def standardize(evidence: Evidence) -> ScoreMatrix:
    """The scores without the means of classes and images, divided by the spread of their class.

    >>> from tagfill.evidence.scores import now
    >>> x = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 2.5]])
    >>> raw = Evidence("a", "cosines", "a test", now(), ScoreMatrix.from_dense((x + [[0.1], [5], [7]]) / 10))
    >>> standardize(raw).rows(np.arange(3)).astype(float).round(1).tolist()
    [[1.3, -1.3], [-1.1, 1.1], [-0.2, 0.2]]
    """
    scores = evidence.scores
    x, image, label = to_log_odds(scores.values, evidence.scale), scores.images(), scores.classes
    per_image = np.diff(scores.starts)
    per_class = np.bincount(label, minlength=scores.width)
    image_mean, class_mean = np.zeros(len(scores)), np.zeros(scores.width)
    image_prior = np.maximum(_IMAGE_PRIOR * (1 - per_image / scores.width), 1e-9)
    for _ in range(_ROUNDS):
        class_mean = np.bincount(label, x - image_mean[image], scores.width) / np.maximum(per_class, 1)
        if evidence.scale == "probabilities":
            break
        image_mean = np.bincount(image, x - class_mean[label], len(scores)) / (per_image + image_prior)
        image_mean -= (image_mean * per_image).sum() / max(per_image.sum(), 1)
    rest = x - class_mean[label] - image_mean[image]
    squares = np.bincount(label, rest**2, scores.width)
    overall = squares.sum() / max(len(x), 1)
    spread = np.sqrt((squares + _CLASS_PRIOR * overall) / (per_class + _CLASS_PRIOR))
    return scores.with_values(rest / np.maximum(spread, 1e-12)[label])


@dataclass(frozen=True)
class DebiasedScores:
    """One standardized score per pair, and how it becomes a probability.

    Attributes:
        scores: z of the pairs that have evidence.
        estimates: turns z into probabilities, given the known labels of an image.
        weights: weight of each piece of evidence by its name; they sum to one.
        trust: L, from 0, not better than chance, to 1: how well z ranks the known tags of a class above its other
            pairs; of all classes together where a class has few tags.
    """

    scores: ScoreMatrix
    estimates: LabelEstimates
    weights: dict[str, float]
    trust: NDArray[np.float64]

    def probabilities(self, index: NDArray[np.integer], labels: NDArray[np.integer]) -> NDArray[np.float64]:
        """B×L probabilities that the pairs of these images are present, NaN where there is no evidence.

        Args:
            index: B images.
            labels: B×L, their known labels; 1 and 0 stay so.
        """
        z = self.scores.rows(index).astype(np.float64)
        found = self.estimates(np.nan_to_num(z), labels)
        return np.where(np.isnan(z), np.nan, found)


def debias(
    evidence: Evidence | Sequence[Evidence], labels: LabelMatrix, *, expected: float | None = None
) -> DebiasedScores:
    """Standardize evidence, and fit how it becomes a probability.

    Args:
        evidence: one or several of the same images.
        labels: known labels of these images.
        expected: stated labels per image; by default what the known labels say, or 1.5 if they say nothing.

    Raises:
        TagfillError: if there is no evidence, or `expected` is no number of labels.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> from tagfill.evidence.scores import now
        >>> x = rng.normal(size=(500, 4))
        >>> raw = Evidence("a", "cosines", "a test", now(), ScoreMatrix.from_dense(x / 10))
        >>> nothing = LabelMatrix.from_dense(np.full(x.shape, -1))
        >>> found = debias(raw, nothing, expected=1.2)
        >>> float(found.probabilities(np.arange(500), nothing.dense()).sum(1).mean().round(2))
        1.2
    """
    pieces = [evidence] if isinstance(evidence, Evidence) else list(evidence)
    if not pieces:
        raise TagfillError("There is no evidence to debias; import some with 'tagfill evidence import'.")
    width = labels.width
    if expected is not None and not 0 < expected < width:
        raise TagfillError(f"{expected} labels per image cannot be expected of {width} classes; give a number between.")
    channels = [standardize(piece) for piece in pieces]
    scored = np.flatnonzero(sum((np.diff(channel.starts) for channel in channels), np.zeros(len(labels), np.int64)) > 0)
    drawn = np.sort(generator(0, "evidence").permutation(scored)[: max(1, _FIT_PAIRS // max(width, 1))])
    known = labels.rows(drawn)
    weights = _weights(channels, drawn, known)
    combined = combine(channels, weights)
    z = np.nan_to_num(combined.rows(drawn).astype(np.float64))
    estimates = _estimate(z, known, expected)
    shares = dict(zip((piece.name for piece in pieces), weights.tolist(), strict=True))
    return DebiasedScores(combined, estimates, shares, class_trust(z, known))


def combine(channels: Sequence[ScoreMatrix], weights: NDArray[np.floating]) -> ScoreMatrix:
    """The weighted sum of scores; where some are missing, the weights of the others sum to one.

    >>> a, b = (ScoreMatrix.from_dense(np.array([x])) for x in ([2.0, np.nan], [4.0, 4.0]))
    >>> combine([a, b], np.array([0.5, 0.5])).rows(np.array([0])).tolist()
    [[3.0, 4.0]]
    """
    if len(channels) == 1:
        return channels[0]
    width = channels[0].width
    keys = [channel.images() * width + channel.classes for channel in channels]
    every, position = np.unique(np.concatenate(keys), return_inverse=True)
    weight = np.repeat(np.maximum(weights, 1e-6), [len(key) for key in keys])
    total = np.bincount(position, weight, len(every))
    values = np.bincount(position, weight * np.concatenate([channel.values for channel in channels]), len(every))
    return ScoreMatrix.from_keys(every, values / total, (len(channels[0]), width))


def _weights(
    channels: Sequence[ScoreMatrix], images: NDArray[np.int64], known: NDArray[np.int8]
) -> NDArray[np.float64]:
    """Weights learned from the known labels, or equal ones if too little is known."""
    equal = np.full(len(channels), 1 / len(channels))
    if len(channels) == 1:
        return equal
    from tagfill.inference.estimates import learn_weights  # imports torch

    stacked = np.stack([np.nan_to_num(channel.rows(images).astype(np.float64)) for channel in channels], axis=2)
    learned = learn_weights(stacked, known)
    return equal if learned is None else learned


def _estimate(z: NDArray[np.float64], known: NDArray[np.int8], expected: float | None) -> LabelEstimates:
    """The calibration of z: fitted to known labels, or by the stated number of labels alone."""
    from tagfill.inference.estimates import estimate_labels  # imports torch

    found = estimate_labels(z, known, confused=0.0)  # another tagger's confusions are not those of our models
    if found is not None and expected is None:
        return found
    if found is None:
        found = uncorrected(Calibration.identity(z.shape[1]).adjusted(_SLOPE, 0.0), known)
    target = len(z) * (EXPECTED_LABELS if expected is None else expected)
    low, high = -20.0, 20.0
    for _ in range(50):
        shift = (low + high) / 2
        shifted = shift_estimates(found, shift)
        low, high = (shift, high) if shifted(z, known).sum() < target else (low, shift)
    priors = shifted(z, known).mean(0) if len(z) else found.priors
    return replace(shifted, priors=priors)


def shift_estimates(estimates: LabelEstimates, shift: float) -> LabelEstimates:
    """Estimates whose log odds are shifted, for images with and without known labels."""
    return replace(estimates, shift=estimates.shift + shift, new_shift=estimates.new_shift + shift)


def class_trust(z: NDArray[np.float64], known: NDArray[np.int8]) -> NDArray[np.float64]:
    """How well z ranks the known tags of each class above its other pairs, from 0 (chance) to 1 (always).

        trust_c = max(0, 2·A_c − 1),   A_c = (Σ_tags a_i + k·A) / (tags + k)

    a_i is the share of the pairs of the class without a known tag that lie below tag i, ties counted half, and A the
    mean of a over all tags of all classes. With k = 10, few tags of a class say little about it. Without any tag all
    classes are trusted.

    >>> z = np.array([[1.0, 0.0], [0.5, 1.0], [0.0, 0.2]])
    >>> class_trust(z, np.array([[1, -1], [-1, -1], [-1, 1]])).round(2).tolist()
    [0.55, 0.45]
    """
    above = np.zeros(z.shape[1])
    tags = (known == POSITIVE).sum(0)
    for label in np.flatnonzero(tags):
        of_tags = z[known[:, label] == POSITIVE, label]
        others = np.sort(z[known[:, label] != POSITIVE, label])
        if len(others):
            below = np.searchsorted(others, of_tags, "left") + np.searchsorted(others, of_tags, "right")
            above[label] = below.sum() / (2 * len(others))
        else:
            above[label] = len(of_tags)
    if not tags.sum():
        return np.ones(z.shape[1])
    mean = above.sum() / tags.sum()
    trust: NDArray[np.float64] = np.clip(2 * (above + _TRUST_TAGS * mean) / (tags + _TRUST_TAGS) - 1, 0.0, 1.0)
    return trust
