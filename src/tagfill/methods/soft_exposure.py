"""SE: every unknown label is a soft positive or negative, as soft as known labels and alike images say.

    L_SE = mean over images of  w₊ Σ_{z=1} ℓ⁺ + Σ_{z=0} ℓ⁻ + Σ_{z=−1} ℓ⁺(g / T)

The temperature T of a label follows from its distance to the labels known of its image and to those of the k nearest
images (`evidence`). SE-L looks at labels alone, SE-I at images alone, and LS has one temperature for all.

Kundu and Tighe, Exploiting weakly supervised visual patterns to learn from partial annotations, NeurIPS 2020.

Choices where the paper is silent or contradicts itself. Distances are of cosine, whose maximum for features that are
not negative is the 1 that stands for missing evidence. One maximum over both signs normalises an image. The unknown
labels of an image without known positives (SE-L), and those that no neighbour knows (SE-I), are left out; SE reads
those without any evidence as absent (`uncovered`). w₊ = 5 is stated for the baseline and taken for all. `temperature`
is as printed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task
from tagfill.errors import TagfillError, one_of
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.memory.neighbors import Distance, Prototype, Search, unit_rows
from tagfill.methods.base import Plain, Stateless
from tagfill.methods.evidence import AlikeImages, Array, KnownLabels, Normalise, Reduce, Softness, Temperature

Uncovered = Literal["ignore", "negative"]

PAPER = "Kundu and Tighe, NeurIPS 2020"
_WORDS = {
    "temperature": get_args(Temperature),
    "normalise": get_args(Normalise),
    "reduce": get_args(Reduce),
    "prototype": get_args(Prototype),
    "distance": get_args(Distance),
    "uncovered": get_args(Uncovered),
    "search": get_args(Search),
}


class SoftExposure(Stateless):
    """Unknown labels at temperatures that follow from evidence.

    Args:
        name: of the method, and of its loss.
        labels: evidence by the labels of an image, if it counts.
        images: evidence by alike images, if it counts.
        softness: from distances to temperatures.
        positive_weight: w₊, of the observed positives.
        uncovered: what to do with labels without evidence.
    """

    paper = PAPER

    def __init__(
        self,
        name: str,
        labels: KnownLabels | None,
        images: AlikeImages | None,
        softness: Softness,
        positive_weight: float,
        uncovered: Uncovered,
    ) -> None:
        self.needs = frozenset({"memory"} if images is None else {"memory", "neighbours"})
        self._name, self._by_labels, self._by_images = name, labels, images
        self._softness, self._weight, self._uncovered = softness, positive_weight, uncovered
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def setup(self, task: Task) -> None:
        """Have distances and neighbours; the features that they come from are asked for once, or not at all."""

        @lru_cache(maxsize=1)
        def features() -> NDArray[np.float32]:
            return unit_rows(task.frozen_features())

        for source in (self._by_labels, self._by_images):
            if source is not None:
                source.setup(task, features)

    def temperatures(self, index: Tensor, labels: Tensor) -> Tensor:
        """T of these images' labels, B×L; 0 for those that are known or left out."""
        known = labels.cpu().numpy()
        present, absent, covered = self._evidence(index, known)
        asked = known == UNKNOWN
        if self._uncovered == "ignore":
            asked &= covered
        return torch.from_numpy(self._softness.temperatures(present, absent, asked))

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Known labels, and unknown ones at their temperature."""
        logits, temperature = prediction.logits, self.temperatures(batch.index, batch.labels)
        self._last = batch.index, batch.labels, temperature
        value = losses.soft_exposure(logits, batch.labels, temperature.to(logits.device), positive_weight=self._weight)
        return {self._name: value}

    def decisions(self) -> Decisions | None:
        """Unknown labels that the last step pushed up, and those that it left out."""
        if self._last is None:
            return None
        index, labels, temperature = self._last
        left_out = (temperature == 0) & (labels.cpu() == UNKNOWN)
        raised = Decisions.of(index, temperature > 0, "pseudo-labelled", POSITIVE)
        return Decisions.join([raised, Decisions.of(index, left_out, "ignored", UNKNOWN)])

    def _evidence(self, index: Tensor, known: NDArray[np.int8]) -> tuple[Array, Array, NDArray[np.bool_]]:
        """d⁺ and d⁻, B×L, and which labels are covered by evidence."""
        if self._by_images is None:
            assert self._by_labels is not None
            present, absent = self._by_labels.read(index, known)
            return present, absent, ~np.isinf(present)
        present, absent = self._by_images.read(index, known)
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
    normalise: Normalise = "joint",
    reduce: Reduce = "min",
    prototype: Prototype = "median",
    distance: Distance = "cosine",
    uncovered: Uncovered = "negative",
    search: Search = "auto",
) -> SoftExposure:
    """Soft exposure by the labels of an image and by images alike."""
    _check("se", locals())
    return SoftExposure(
        "se",
        KnownLabels(prototype, distance, reduce),
        AlikeImages(k, distance, reduce, search),
        Softness(beta, gamma, temperature, normalise),
        positive_weight,
        uncovered,
    )


def se_l(
    *,
    beta: float = 5.0,
    gamma: float = 0.0,
    positive_weight: float = 5.0,
    temperature: Temperature = "paper",
    normalise: Normalise = "joint",
    reduce: Reduce = "min",
    prototype: Prototype = "median",
    distance: Distance = "cosine",
    uncovered: Uncovered = "ignore",
) -> SoftExposure:
    """Soft exposure by the labels of an image alone."""
    _check("se-l", locals())
    labels = KnownLabels(prototype, distance, reduce)
    return SoftExposure("se-l", labels, None, Softness(beta, gamma, temperature, normalise), positive_weight, uncovered)


def se_i(
    *,
    k: int = 10,
    beta: float = 5.0,
    gamma: float = 0.0,
    positive_weight: float = 5.0,
    temperature: Temperature = "paper",
    normalise: Normalise = "joint",
    reduce: Reduce = "min",
    distance: Distance = "cosine",
    uncovered: Uncovered = "ignore",
    search: Search = "auto",
) -> SoftExposure:
    """Soft exposure by images alike alone."""
    _check("se-i", locals())
    images = AlikeImages(k, distance, reduce, search)
    return SoftExposure("se-i", None, images, Softness(beta, gamma, temperature, normalise), positive_weight, uncovered)


def ls(*, temperature: float = 5.0, positive_weight: float = 5.0) -> Plain:
    """All unknown labels are negatives of one temperature."""
    if temperature < 1e-3:
        raise TagfillError(f"The method 'ls' needs a temperature of 0.001 or more; it is {temperature}.")
    return Plain("ls", losses.soft_exposure, PAPER, temperature=-temperature, positive_weight=positive_weight)


def _check(name: str, options: dict[str, Any]) -> None:
    """Refuse what makes no sense, before any data is looked at."""
    for option, words in _WORDS.items():
        if option in options:
            one_of(f"The option {option} of the method '{name}'", str(options[option]), words)
    if (count := options.get("k", 1)) < 1:
        raise TagfillError(f"The method '{name}' needs at least one neighbour; k is {count}.")
    beta, gamma = options["beta"], options["gamma"]
    if beta < 0 or not 0 <= gamma <= 0.999:
        raise TagfillError(
            f"The method '{name}' takes beta of 0 or more, and gamma from 0 to 0.999, above which a temperature can be "
            f"zero; they are {beta} and {gamma}."
        )
