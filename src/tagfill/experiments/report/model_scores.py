"""What models say about the images of a report, one model at a time, reduced to what sections show.

Scores of a part of a split are held densely, n×L, in single precision. The part is at most 20,000 images and 50 million
scores (200 MB); of a larger split every k-th image is looked at, and the report says so. Only one model's scores are
held at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.experiments.report.material import Entrant, Material
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.metrics import average_precision
from tagfill.probabilities import sigmoid
from tagfill.progress import SILENT, Progress
from tagfill.training.evaluation import LoadedModel

MOST_IMAGES, MOST_SCORES = 20_000, 50_000_000
EDGES = np.linspace(0, 1, 41)
SUSPECTS = 12
_CURVE = 120  # points of a precision-recall curve that are kept

Labels = NDArray[np.int8]
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """The images of a split that are looked at.

    Attributes:
        split: its name.
        index: positions in it.
        size: images of the whole split.
        observed: n×L, what the methods were given.
        truth: n×L, what is true; the same where nobody knows more.
    """

    split: str
    index: NDArray[np.int64]
    size: int
    observed: Labels
    truth: Labels

    @classmethod
    def of(cls, data: Dataset, truth: Dataset | None, split: str) -> Part:
        """Every k-th image of a split, so that the limits are kept."""
        size, width = len(data.split(split)), len(data.classes)
        most = max(1, min(MOST_IMAGES, MOST_SCORES // max(width, 1)))
        index = np.arange(0, size, max(1, -(-size // most)))
        observed = data.labels(split).rows(index)
        return cls(split, index, size, observed, observed if truth is None else truth.labels(split).rows(index))

    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Entries by what was observed and what is true, those kinds that occur."""
        unknown = self.observed == UNKNOWN
        found = {
            "observed": self.observed == POSITIVE,
            "missed": unknown & (self.truth == POSITIVE),
            "absent": self.truth == NEGATIVE,
            "unknown": unknown & (self.truth == UNKNOWN),
        }
        return {name: mask for name, mask in found.items() if mask.any()}


@dataclass(frozen=True)
class Recovery:
    """How well unobserved labels are found: precision and recall as more and more are called present.

    Attributes:
        average_precision: over all unobserved labels at once.
        recall: of some numbers of labels called present, ascending.
        precision: of the same.
        missing: labels that are to be found.
    """

    average_precision: float
    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    missing: int

    def recall_at(self, precision: float) -> float:
        """The share of missing labels that can be had while so many of those called present are right."""
        return float(self.recall[self.precision >= precision].max(initial=0.0))


@dataclass(frozen=True)
class Suspect:
    """A label that a model believes in and nobody confirmed: position in the split, class, probability, truth."""

    index: int
    label: int
    probability: float
    truth: int


@dataclass(frozen=True)
class Look:
    """What a model says.

    Attributes:
        average_precision: L, on the split that gives the scores.
        histograms: shares of probabilities between `EDGES`, by kind of training label.
        recovery: of unobserved training labels, where the truth is known.
        suspects: unobserved training labels that are most confidently present.
        mistakes: the same of labels of the scored split that are said to be absent.
    """

    average_precision: NDArray[np.float64]
    histograms: dict[str, NDArray[np.float64]]
    recovery: Recovery | None
    suspects: list[Suspect]
    mistakes: list[Suspect]


def look(material: Material, train: Part, scored: Part, progress: Progress = SILENT) -> dict[str, Look]:
    """Look at both parts with each entrant's model."""
    found = {}
    with progress.bar("report", len(material.entrants) * (len(train.index) + len(scored.index)), "images") as bar:
        for entrant in material.entrants:
            trained = opened(entrant, material.data)
            on_train, there = logits(trained, train, bar)
            on_scored, here = logits(trained, scored, bar)
            found[entrant.name] = Look(
                average_precision(on_scored, scored.truth[here]),
                _histograms(on_train, train, there),
                recovery(on_train, train, there),
                top(on_train, train, there, train.observed[there] == UNKNOWN),
                top(on_scored, scored, here, scored.truth[here] == NEGATIVE),
            )
    return found


def opened(entrant: Entrant, data: Dataset, *, maps: bool = False) -> LoadedModel:
    """The model of an entrant, on the features that it ended on or on images."""
    return LoadedModel.open(entrant.run, data, features=entrant.run.recipe.final_features, maps=maps)


def logits(trained: LoadedModel, part: Part, bar: Any) -> tuple[Scores, NDArray[np.int64]]:
    """Logits, and the rows of the part that they belong to: images that cannot be read are missing."""
    index, values = [np.empty(0, np.int64)], [np.empty((0, len(trained.dataset.classes)), np.float32)]
    for batch, prediction in trained.predict(part.split, part.index):
        index.append(batch.index.numpy(force=True))
        values.append(prediction.logits.float().numpy(force=True))
        bar.advance(len(batch.index))
    rows = np.searchsorted(part.index, np.concatenate(index))
    return np.concatenate(values), rows


def top(values: Scores, part: Part, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> list[Suspect]:
    """The highest scores among some entries, one an image so that one picture does not fill them all."""
    best = np.where(among, values, -np.inf)
    label = best.argmax(1)
    score = best[np.arange(len(best)), label]
    order = np.argsort(-score, kind="stable")[:SUSPECTS]
    return [
        Suspect(
            int(part.index[rows[at]]),
            int(label[at]),
            float(sigmoid(score[at])),
            int(part.truth[rows[at], label[at]]),
        )
        for at in order.tolist()
        if np.isfinite(score[at])
    ]


def _histograms(values: Scores, part: Part, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    shares = {}
    for kind, mask in part.kinds().items():
        counts = np.histogram(sigmoid(values[mask[rows]]), EDGES)[0]
        shares[kind] = counts / max(counts.sum(), 1)
    return shares


def recovery(values: Scores, part: Part, rows: NDArray[np.int64]) -> Recovery | None:
    """Unobserved labels called present in the order of their scores, equal ones together."""
    asked = (part.observed[rows] == UNKNOWN) & (part.truth[rows] != UNKNOWN)
    present = part.truth[rows][asked] == POSITIVE
    if not present.any():
        return None
    scores = values[asked]
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(present[order])
    called = np.arange(1, len(order) + 1)
    last = np.append(scores[order][1:] != scores[order][:-1], True)  # equal scores are called together
    precision, recall = (right / called)[last], (right / right[-1])[last]
    kept = np.unique(np.searchsorted(recall, np.linspace(recall[0], 1, _CURVE)))
    whole = float(average_precision(scores[:, None], present[:, None].astype(np.int8))[0])
    return Recovery(whole, recall[kept], precision[kept], int(right[-1]))
