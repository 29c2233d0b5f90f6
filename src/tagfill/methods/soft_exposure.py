"""SE: every unknown label is a soft positive or negative, as soft as known labels and similar images suggest.

    L_SE = mean over images of  w₊ Σ_{z=1} ℓ⁺ + Σ_{z=0} ℓ⁻ + Σ_{z=−1} ℓ⁺(g / T)

The temperature T of a label follows from its distance to known labels, of its own image and of the k nearest images:

    d_L⁺(c, x) = min d(c, c') over the classes c' known to be present in image x; d_L⁻ over those known to be absent
    d_I⁺(c, x) = min d(x, x') over the k nearest images x' that are known to show c; d_I⁻ over those known not to
    d^±        = min(d_L^±, d_I^±), where missing evidence counts as 1
    T          = +exp(β (1 − d⁺)) + γ  if d⁺ < d⁻,  else  −exp(β (1 − d⁻)) + γ

SE-L uses labels only, SE-I images only, and LS has one temperature for all. SE-E is ours: d⁺ = 1 − p and d⁻ = p, with p
what other taggers say, debiased (`tagfill.evidence.debias`); the option `evidence` of SE adds these distances.

Before T, d⁺ and d⁻ are divided by their maximum over the unknown labels of the image. A label with near evidence is
almost ignored (|T| = 148 at d = 0) and one with far evidence is a hard target (|T| = 1 at d = 1): §4.1.1 of the paper
confirms that confidence raises the temperature. With temperature="inverse", |T| = exp(β d), it is the other way around.
Temperatures are computed one batch at a time from the distances of classes (L×L) and the neighbors of images (n×k).
Both come from memory, and are computed from the features of a frozen network unless a checkpoint or an earlier stage
has them. In the code, `inf` marks missing evidence until distances are combined.

Kundu and Tighe, Exploiting weakly supervised visual patterns to learn from partial annotations, NeurIPS 2020.

Choices where the paper is silent or contradicts itself. Distances are cosine, whose maximum for features that are not
negative is the 1 that missing evidence counts as. One maximum over both signs normalizes an image. SE-L ignores the
unknown labels of an image that lacks known positives or known negatives (the rebuttal: "we ignore such labels" where
P(x), N(x) = ∅), and SE-I those that no neighbor knows; SE treats those without any evidence as absent (`uncovered`).
w₊ = 5 is stated for the baseline and used for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, TaggerEvidence, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.memory.neighbors import DistanceKind, PrototypeKind, Search, unit_rows
from tagfill.methods.base import BaseMethod, LossMethod, check_evidence, evidence_state

Array = NDArray[np.float32]
Temperature = Literal["paper", "inverse"]
Normalization = Literal["joint", "separate"]
Reduce = Literal["min", "median5"]
Uncovered = Literal["ignore", "negative"]

PAPER = "Kundu and Tighe, NeurIPS 2020"
_NEAREST = {"min": 1, "median5": 5}
_ENTRIES = 1 << 22  # distances that are computed together
_HOTTEST = 69.0  # as a power of e: T = 1e30 ignores a label as well as infinity would, and is finite


class SoftExposure(BaseMethod):
    """Unknown labels at temperatures that follow from evidence.

    Args:
        name: of the method, and of its loss.
        labels: evidence from the labels of an image; None ignores them.
        images: evidence from similar images; None ignores them.
        taggers: evidence of other taggers; None ignores it.
        rule: from distances to temperatures.
        positive_weight: w₊, of the observed positives.
        uncovered: what to do with labels without evidence.
    """

    paper = PAPER

    def __init__(
        self,
        name: str,
        labels: LabelEvidence | None,
        images: NeighborEvidence | None,
        rule: TemperatureRule,
        positive_weight: float,
        uncovered: Uncovered,
        taggers: ScoreEvidence | None = None,
    ) -> None:
        self.needs = frozenset({"memory"} if images is None else {"memory", "neighbors"})
        self.needs |= set() if taggers is None else {"evidence"}
        self._name, self._by_labels, self._by_images, self._by_taggers = name, labels, images, taggers
        self._rule, self._weight, self._uncovered = rule, positive_weight, uncovered
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def setup(self, task: Task) -> None:
        """Prepare distances and neighbors; the features behind them are computed once, or not at all."""

        @lru_cache(maxsize=1)
        def features() -> NDArray[np.float32]:
            return unit_rows(task.frozen_features())

        for source in (self._by_labels, self._by_images, self._by_taggers):
            if source is not None:
                source.setup(task, features)

    def temperatures(self, index: Tensor, labels: Tensor) -> Tensor:
        """T of these images' labels, B×L on the host; 0 for those that are known or ignored."""
        known = labels.cpu().numpy()
        present, absent, covered = self._evidence(index, known)
        asked = known == UNKNOWN
        if self._uncovered == "ignore":
            asked &= covered
        return torch.from_numpy(self._rule.temperatures(present, absent, asked))

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Known labels, and unknown ones at their temperature."""
        logits, labels = prediction.logits, batch.labels_on_host
        temperature = self.temperatures(batch.index, labels)
        self._last = batch.index, labels, temperature
        softness = upload(temperature, logits.device)
        value = losses.soft_exposure(logits, batch.labels, softness, positive_weight=self._weight)
        return {self._name: value}

    def state_dict(self) -> dict[str, Tensor]:
        """What tells the evidence of other taggers from any other, if it is used."""
        return {} if self._by_taggers is None else evidence_state(self._by_taggers.opened)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Raise if the evidence is not that of the checkpoint."""
        if self._by_taggers is not None:
            check_evidence(self._by_taggers.opened, state)

    def decisions(self) -> Decisions | None:
        """Unknown labels that the last step pushed up, and those that it ignored."""
        if self._last is None:
            return None
        index, labels, temperature = self._last
        left_out = (temperature == 0) & (labels == UNKNOWN)
        raised = Decisions.of(index, temperature > 0, "pseudo-labelled", POSITIVE)
        return Decisions.join([raised, Decisions.of(index, left_out, "ignored", UNKNOWN)])

    def _evidence(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array, NDArray[np.bool_]]:
        """d⁺ and d⁻, B×L, and which labels are covered by evidence."""
        if self._by_images is None and self._by_taggers is None:
            assert self._by_labels is not None
            present, absent = self._by_labels.read(index, known)
            return present, absent, ~np.isinf(np.maximum(present, absent))
        present, absent = np.full((2, *known.shape), np.inf, np.float32)
        if self._by_images is not None:
            present, absent = self._by_images.read(index, known)
        if self._by_taggers is not None:
            said = self._by_taggers.read(index, known)
            present, absent = np.minimum(present, said[0]), np.minimum(absent, said[1])
        covered = ~np.isinf(np.minimum(present, absent))
        if self._by_labels is not None:
            beside = self._by_labels.read(index, known)
            covered |= ~np.isinf(np.minimum(*beside))
            present, absent = (np.where(np.isinf(away), np.float32(1), away) for away in (present, absent))
            present, absent = np.minimum(beside[0], present), np.minimum(beside[1], absent)
        return present, absent, covered


def se(
    *,
    k: int = 10,
    beta: float = 5.0,
    gamma: float = 0.0,
    positive_weight: float = 5.0,
    temperature: Temperature = "paper",
    normalize: Normalization = "joint",
    reduce: Reduce = "min",
    prototype: PrototypeKind = "median",
    distance: DistanceKind = "cosine",
    uncovered: Uncovered = "negative",
    search: Search = "auto",
    evidence: bool = False,
) -> SoftExposure:
    """Soft exposure by the labels of an image and by similar images, and by evidence of other taggers if asked for."""
    _check("se", beta, gamma, k)
    return SoftExposure(
        "se",
        LabelEvidence(prototype, distance, reduce),
        NeighborEvidence(k, distance, reduce, search),
        TemperatureRule(beta, gamma, temperature, normalize),
        positive_weight,
        uncovered,
        ScoreEvidence(None) if evidence else None,
    )


def se_e(
    *,
    evidence: str | list[str] | None = None,
    beta: float = 5.0,
    gamma: float = 0.0,
    positive_weight: float = 5.0,
    temperature: Temperature = "inverse",
    normalize: Normalization = "joint",
    uncovered: Uncovered = "ignore",
) -> SoftExposure:
    """Soft exposure by evidence of other taggers alone; sure evidence is a hard target, unlike in the paper."""
    _check("se-e", beta, gamma)
    taggers = ScoreEvidence([evidence] if isinstance(evidence, str) else evidence)
    rule = TemperatureRule(beta, gamma, temperature, normalize)
    return SoftExposure("se-e", None, None, rule, positive_weight, uncovered, taggers)


def se_l(
    *,
    beta: float = 5.0,
    gamma: float = 0.0,
    positive_weight: float = 5.0,
    temperature: Temperature = "paper",
    normalize: Normalization = "joint",
    reduce: Reduce = "min",
    prototype: PrototypeKind = "median",
    distance: DistanceKind = "cosine",
    uncovered: Uncovered = "ignore",
) -> SoftExposure:
    """Soft exposure by the labels of an image alone."""
    _check("se-l", beta, gamma)
    labels = LabelEvidence(prototype, distance, reduce)
    return SoftExposure(
        "se-l", labels, None, TemperatureRule(beta, gamma, temperature, normalize), positive_weight, uncovered
    )


def se_i(
    *,
    k: int = 10,
    beta: float = 5.0,
    gamma: float = 0.0,
    positive_weight: float = 5.0,
    temperature: Temperature = "paper",
    normalize: Normalization = "joint",
    reduce: Reduce = "min",
    distance: DistanceKind = "cosine",
    uncovered: Uncovered = "ignore",
    search: Search = "auto",
) -> SoftExposure:
    """Soft exposure by similar images alone."""
    _check("se-i", beta, gamma, k)
    images = NeighborEvidence(k, distance, reduce, search)
    return SoftExposure(
        "se-i", None, images, TemperatureRule(beta, gamma, temperature, normalize), positive_weight, uncovered
    )


def ls(*, temperature: float = 5.0, positive_weight: float = 5.0) -> LossMethod:
    """All unknown labels are negatives with one temperature."""
    if temperature < 1e-3:
        raise TagfillError(f"The method 'ls' needs a temperature of 0.001 or more; it is {temperature}.")
    return LossMethod("ls", losses.soft_exposure, PAPER, temperature=-temperature, positive_weight=positive_weight)


def _check(name: str, beta: float, gamma: float, k: int = 1) -> None:
    """Raise if an option makes no sense, before any data is read."""
    if k < 1:
        raise TagfillError(f"The method '{name}' needs at least one neighbor; k is {k}.")
    if beta < 0 or not 0 <= gamma <= 0.999:
        raise TagfillError(
            f"The method '{name}' needs a beta of 0 or more, and a gamma from 0 to 0.999, above which a temperature "
            f"can be zero; they are {beta} and {gamma}."
        )


class LabelEvidence:
    """Distances of unknown labels to the known labels of their image.

    Args:
        prototype: of a class.
        distance: of two classes.
        reduce: how several distances become one.
    """

    def __init__(self, prototype: PrototypeKind, distance: DistanceKind, reduce: Reduce) -> None:
        self._prototype: PrototypeKind = prototype
        self._distance: DistanceKind = distance
        self._nearest = _NEAREST[reduce]

    def setup(self, task: Task, features: Callable[[], NDArray[np.float32]]) -> None:
        """Prepare the distances of classes; `features` returns N×D rows of length 1."""
        self._classes = task.memory.class_distances(prototype=self._prototype, distance=self._distance)
        if not self._classes.ready:
            self._classes.fill(features(), task.labels, prototype=self._prototype, distance=self._distance)

    def read(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array]:
        """d_L⁺ and d_L⁻, B×L; `inf` where the image has no such label."""
        distances = self._classes.values.numpy()
        present, absent = (
            distances_to_labels(distances, known == state, self._nearest) for state in (POSITIVE, NEGATIVE)
        )
        return present, absent


class ScoreEvidence:
    """Distances of unknown labels to certainty, as other taggers see it: d⁺ = 1 − p, d⁻ = p.

    Args:
        names: of the evidence; None is all that the dataset has.
    """

    def __init__(self, names: list[str] | None) -> None:
        self._names = names

    def setup(self, task: Task, features: Callable[[], NDArray[np.float32]]) -> None:
        """Read the evidence; `features` are not needed."""
        self.opened: TaggerEvidence = task.evidence(self._names)

    def read(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array]:
        """d⁺ and d⁻, B×L; `inf` where there is no score."""
        p = self.opened.probabilities(index.cpu().numpy(), known)
        missing = np.isnan(p)
        return np.where(missing, np.float32(np.inf), 1 - p), np.where(missing, np.float32(np.inf), p)


class NeighborEvidence:
    """Distances of an image to those of its nearest images whose label is known.

    Args:
        count: k, neighbors of an image.
        distance: of two images.
        reduce: how several distances become one.
        search: how neighbors are found.
    """

    def __init__(self, count: int, distance: DistanceKind, reduce: Reduce, search: Search) -> None:
        self._count, self._distance, self._nearest = count, distance, _NEAREST[reduce]
        self._search: Search = search

    def setup(self, task: Task, features: Callable[[], NDArray[np.float32]]) -> None:
        """Prepare the neighbors; `features` returns N×D rows of length 1."""
        self._labels = task.labels
        self._neighbors = task.memory.neighbors(count=self._count)
        if not self._neighbors.ready:
            self._neighbors.fill(features(), search=self._search)

    def read(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array]:
        """d_I⁺ and d_I⁻, B×L; `inf` where no neighbor has such a label."""
        images, away = self._neighbors.read(index)
        if self._distance == "euclidean":  # of two vectors of length 1
            away = np.sqrt(2 * away)
        present, absent = (
            distances_to_images(images, away, self._labels, state, self._nearest) for state in (POSITIVE, NEGATIVE)
        )
        return present, absent


def distances_to_labels(distances: Array, known: NDArray[np.bool_], nearest: int = 1) -> Array:
    """d_L: how near each class is to the known ones of its image.

    Args:
        distances: L×L, of classes.
        known: B×L, the classes to measure from: those known to be present, or those known to be absent.
        nearest: take the median of this many smallest distances; 1 is their minimum.

    Returns:
        B×L; `inf` throughout an image that has no such class.

    Example:
        >>> distances = np.array([[0, 0.2, 0.9], [0.2, 0, 0.5], [0.9, 0.5, 0]], np.float32)
        >>> distances_to_labels(distances, np.array([[True, True, False]]))[0, 2].item()
        0.5
    """
    counts = known.sum(1)
    most, width = int(counts.max(initial=0)), known.shape[1]
    result = np.full(known.shape, np.inf, dtype=np.float32)
    if most == 0:
        return result
    step = max(1, _ENTRIES // (most * width))
    for start in range(0, len(known), step):
        part, count = known[start : start + step], counts[start : start + step]
        classes = np.argsort(~part, axis=1, kind="stable")[:, :most]  # the known ones come first
        away = distances[classes]  # B×most×L
        away[np.arange(most) >= count[:, None]] = np.inf
        if nearest > 1:
            away.sort(axis=1)
            taken = np.minimum(count, nearest)
            rows = np.arange(len(part))
            middle = away[rows, np.maximum(taken - 1, 0) // 2], away[rows, np.minimum(taken // 2, most - 1)]
            result[start : start + step] = (middle[0] + middle[1]) / 2
        else:
            result[start : start + step] = away.min(1)
    return result


def distances_to_images(
    index: NDArray[np.int64], distance: Array, labels: LabelMatrix, state: int, nearest: int = 1
) -> Array:
    """d_I: how near the nearest image is whose label of each class is known to be `state`.

    Args:
        index: B×k neighbors of each image.
        distance: B×k, of each.
        labels: of all training images.
        state: 1 for d⁺, 0 for d⁻.
        nearest: take the median of this many smallest distances; 1 is their minimum.

    Returns:
        B×L; `inf` where no neighbor has such a label.

    Example:
        >>> labels = LabelMatrix.from_dense(np.array([[-1, -1], [1, 0], [1, -1]]))
        >>> distances_to_images(np.array([[1, 2]]), np.array([[0.2, 0.1]], np.float32), labels, state=1).tolist()
        [[0.10000000149011612, inf]]
    """
    result = np.full(len(index) * labels.width, np.inf, dtype=np.float32)
    entry, neighbor = labels.entries(index.reshape(-1))
    chosen = labels.values[entry] == state
    entry, neighbor = entry[chosen], neighbor[chosen]
    away = distance.reshape(-1)[neighbor]
    place = (neighbor // max(index.shape[1], 1)) * labels.width + labels.classes[entry]
    order = np.lexsort((away, place))
    place, away = place[order], away[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(len(place), 1), dtype=bool), place[1:] != place[:-1]]))
    taken = np.minimum(np.diff(np.append(first, len(place))), nearest)
    result[place[first]] = (away[first + (taken - 1) // 2] + away[first + taken // 2]) / 2
    return result.reshape(len(index), labels.width)


@dataclass(frozen=True)
class TemperatureRule:
    """Temperatures from distances.

    Attributes:
        beta: β, how much hotter near evidence is than far evidence.
        gamma: γ, added to every temperature; below 1, or one could be zero.
        temperature: "paper": soft where evidence is near; "inverse": soft where it is far.
        normalize: divide d⁺ and d⁻ of an image by the maximum over both ("joint"), or each by its own ("separate").
    """

    beta: float = 5.0
    gamma: float = 0.0
    temperature: Temperature = "paper"
    normalize: Normalization = "joint"

    def temperatures(self, present: Array, absent: Array, asked: NDArray[np.bool_]) -> Array:
        """T of each unknown label.

        Args:
            present: B×L, d⁺; `inf` is missing evidence and counts as 1.
            absent: B×L, d⁻.
            asked: B×L, the unknown labels that get a temperature; the maximum is over these.

        Returns:
            B×L; 0 elsewhere.

        Example:
            >>> present, absent = np.array([[0.0, 1.0]], np.float32), np.ones((1, 2), np.float32)
            >>> TemperatureRule().temperatures(present, absent, np.array([[True, True]])).round(3).tolist()
            [[148.41299438476562, -1.0]]
        """
        pair = np.stack([present, absent]).astype(np.float64)
        pair = np.where(asked, np.where(np.isinf(pair), 1, pair), 0)
        top = pair.max(axis=(0, 2) if self.normalize == "joint" else 2, initial=0, keepdims=True)
        near, far = pair / np.where(top > 0, top, 1)
        positive = near < far  # a tie is a negative
        away = np.where(positive, near, far)
        power = self.beta * (away if self.temperature == "inverse" else 1 - away)
        size = np.exp(np.minimum(power, _HOTTEST))
        return np.where(asked, np.where(positive, size, -size) + self.gamma, 0).astype(np.float32)
