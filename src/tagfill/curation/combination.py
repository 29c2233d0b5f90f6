"""One logit of two opinions: cross-fitted scores of a model, and evidence of other taggers.

    g' = σ_g · (w₀·g/σ_g + Σ_k w_k·z_k)

g is the model's logit, σ_g its standard deviation over all pairs, and z_k the k-th evidence, standardized
(`tagfill.evidence.debias`). The weights are not negative, sum to one and maximize the likelihood of the known labels
(`tagfill.inference.estimates.learn_weights`), so that evidence that contradicts them is ignored. g' then takes the
place of g: it is calibrated and corrected for missing labels in the same way.

Where a pair lacks a score, z_k is what the model's logit lets expect: the line z_k = α_k + β_k·g that fits the pairs
that have one. So an image without evidence is ranked as the model ranks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.curation.estimates import learn_weights
from tagfill.dataset import Dataset
from tagfill.evidence import ScoreMatrix, list_evidence, open_evidence, standardize
from tagfill.rng import generator

MODEL = "model"  # its name among the weights
_SAMPLE = 200_000  # pairs that weights and lines are learned from


@dataclass(frozen=True)
class Combination:
    """Weights of a model and of evidence.

    Attributes:
        evidence: standardized scores of all images, by name.
        scale: standard deviation of the model's logits.
        weights: of the model and of each piece of evidence, in their order.
        lines: K×2, intercept and slope of each evidence over the model's logits.
    """

    evidence: dict[str, ScoreMatrix]
    scale: float
    weights: NDArray[np.float64]
    lines: NDArray[np.float64]

    @classmethod
    def learn(
        cls,
        evidence: dict[str, ScoreMatrix],
        rows: NDArray[np.int64],
        logits: NDArray[np.floating],
        labels: Callable[[NDArray[np.int64]], NDArray[np.int8]],
    ) -> Combination | None:
        """Learn from images that the model was not trained on; None if too few labels are known.

        Args:
            evidence: standardized scores of all images of the dataset, by name.
            rows: n images, as rows of the image table.
            logits: n×L, of the model.
            labels: returns the known labels of images, by their rows.
        """
        every = len(rows)
        drawn = np.sort(generator(0, "combination").permutation(every)[: max(1, _SAMPLE // max(logits.shape[1], 1))])
        some, model = rows[drawn], logits[drawn].astype(np.float64)
        scale = max(float(model.std()), 1e-9) if model.size else 1.0
        channels = [scores.rows(some).astype(np.float64) for scores in evidence.values()]
        lines = np.array([_line(model, channel) for channel in channels])
        found = cls(evidence, scale, np.full(len(channels) + 1, np.nan), lines)
        weights = learn_weights(found._channels(some, model), labels(some))
        return None if weights is None else cls(evidence, scale, weights, lines)

    def __call__(self, rows: NDArray[np.int64], logits: NDArray[np.floating]) -> NDArray[np.float32]:
        """Combined logits of images, n×L."""
        combined = self._channels(rows, logits.astype(np.float64)) @ self.weights
        return (self.scale * combined).astype(np.float32)

    def covers(self, rows: NDArray[np.int64]) -> float:
        """The share of the pairs of these images that have all evidence."""
        if not len(rows):
            return 0.0
        return min(float(np.mean(~np.isnan(scores.rows(rows)))) for scores in self.evidence.values())

    @property
    def shares(self) -> dict[str, float]:
        """The weights by name."""
        return dict(zip((MODEL, *self.evidence), self.weights.tolist(), strict=True))

    def _channels(self, rows: NDArray[np.int64], logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """n×L×(1 + K): the model and the evidence, on about the same scale and without gaps."""
        channels = [logits / self.scale]
        for scores, (intercept, slope) in zip(self.evidence.values(), self.lines, strict=True):
            z = scores.rows(rows).astype(np.float64)
            channels.append(np.where(np.isnan(z), intercept + slope * logits, z))
        return np.stack(channels, axis=2)


def open_standardized(dataset: Dataset, names: Sequence[str] | None = None) -> dict[str, ScoreMatrix]:
    """Standardized evidence of a dataset.

    Args:
        dataset: on disk, or without evidence.
        names: of the evidence; None is all that the dataset has.
    """
    wanted = list_evidence(dataset) if names is None else list(dict.fromkeys(names))
    return {name: standardize(open_evidence(dataset, name)) for name in wanted}


def _line(model: NDArray[np.float64], evidence: NDArray[np.float64]) -> tuple[float, float]:
    """Intercept and slope of the least-squares line of evidence over logits, of the pairs that have both."""
    there = ~np.isnan(evidence)
    if there.sum() < 2:
        return 0.0, 0.0
    g, z = model[there], evidence[there]
    slope = float(((g - g.mean()) * (z - z.mean())).sum() / max(float(((g - g.mean()) ** 2).sum()), 1e-12))
    return float(z.mean() - slope * g.mean()), slope
