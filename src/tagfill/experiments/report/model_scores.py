"""What each model predicts for the images of a report, reduced to what its sections show.

Predictions are held as a dense n×L float32 array for one model at a time. Of a split with more than 20,000 images or
50 million scores (200 MB), every k-th image is used, and the report says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.experiments.report.report_data import ReportData
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.metrics import average_precision
from tagfill.probabilities import probabilities
from tagfill.progress import SILENT, Progress
from tagfill.training.evaluation import LoadedModel

MAX_IMAGES, MAX_SCORES = 20_000, 50_000_000
EDGES = np.linspace(0, 1, 41)  # of the histograms
SUSPECTS = 12
_CURVE_POINTS = 120

Labels = NDArray[np.int8]
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class ImageSample:
    """Images of a split, evenly spaced, with their labels.

    Attributes:
        split: its name.
        index: n, positions in the split.
        size: number of images in the split.
        observed: n×L, labels that the methods were trained on.
        truth: n×L, true labels; the observed ones if there are no others.
    """

    split: str
    index: NDArray[np.int64]
    size: int
    observed: Labels
    truth: Labels

    @classmethod
    def draw(cls, data: Dataset, truth: Dataset | None, split: str) -> ImageSample:
        """Take every k-th image of a split, so that the limits are kept."""
        size, width = len(data.split(split)), len(data.classes)
        most = max(1, min(MAX_IMAGES, MAX_SCORES // max(width, 1)))
        index = np.arange(0, size, max(1, -(-size // most)))
        observed = data.labels(split).rows(index)
        return cls(split, index, size, observed, observed if truth is None else truth.labels(split).rows(index))

    def entries_by_kind(self) -> dict[str, NDArray[np.bool_]]:
        """Masks, n×L, of the kinds of labels that occur, by what was observed and what is true."""
        unknown = self.observed == UNKNOWN
        masks = {
            "observed": self.observed == POSITIVE,
            "missed": unknown & (self.truth == POSITIVE),
            "absent": self.truth == NEGATIVE,
            "unknown": unknown & (self.truth == UNKNOWN),
        }
        return {kind: mask for kind, mask in masks.items() if mask.any()}


@dataclass(frozen=True)
class RecoveryCurve:
    """How well a model finds missing labels, as more and more unknown labels are called present.

    Attributes:
        average_precision: over all unknown labels together.
        recall: of the missing labels, ascending.
        precision: at the same points.
        missing: number of missing labels.
    """

    average_precision: float
    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    missing: int

    def recall_at(self, precision: float) -> float:
        """The highest recall at which the precision is still reached."""
        return float(self.recall[self.precision >= precision].max(initial=0.0))


@dataclass(frozen=True)
class Suspect:
    """A label that a model predicts with confidence although it was not given.

    Attributes:
        index: position of the image in the split.
        label: the class.
        probability: that the model predicts.
        truth: true label, -1 if unknown.
    """

    index: int
    label: int
    probability: float
    truth: int


@dataclass(frozen=True)
class ModelScores:
    """What a model predicts.

    Attributes:
        average_precision: L, on the split of the leaderboard.
        histograms: shares of probabilities between `EDGES`, by kind of training label.
        recovery: of missing training labels, if the truth is known.
        suspects: unknown training labels with the highest probabilities.
        mistakes: absent labels of the leaderboard's split with the highest probabilities.
    """

    average_precision: NDArray[np.float64]
    histograms: dict[str, NDArray[np.float64]]
    recovery: RecoveryCurve | None
    suspects: list[Suspect]
    mistakes: list[Suspect]


def score_models(
    report: ReportData, train: ImageSample, scored: ImageSample, progress: Progress = SILENT
) -> dict[str, ModelScores]:
    """Predict both samples with the model of each method."""
    scores = {}
    with progress.bar("report", len(report.methods) * (len(train.index) + len(scored.index)), "images") as bar:
        for method in report.methods:
            model = method.load_model(report.data)
            train_logits, train_rows = predict_logits(model, train, bar)
            logits, rows = predict_logits(model, scored, bar)
            train_shares, shares = (probabilities(each, model.model.calibration) for each in (train_logits, logits))
            scores[method.name] = ModelScores(
                average_precision(logits, scored.truth[rows]),
                _histograms(train_shares, train, train_rows),
                recovery_curve(train_logits, train, train_rows),
                most_confident(train_shares, train, train_rows, train.observed[train_rows] == UNKNOWN),
                most_confident(shares, scored, rows, scored.truth[rows] == NEGATIVE),
            )
    return scores


def predict_logits(model: LoadedModel, sample: ImageSample, bar: Any) -> tuple[Scores, NDArray[np.int64]]:
    """Logits, and the row of the sample that each belongs to; images that cannot be read are missing."""
    index, logits = model.logits(sample.split, sample.index, bar=bar)
    return logits, np.searchsorted(sample.index, index)


def most_confident(
    shares: Scores, sample: ImageSample, rows: NDArray[np.int64], among: NDArray[np.bool_]
) -> list[Suspect]:
    """The entries of a mask with the highest probabilities, at most one per image, spread over the classes.

    Every class gives its best entry before any class gives its second one.
    """
    best = np.where(among, shares, -np.inf)
    label = best.argmax(1)
    score = best[np.arange(len(best)), label]
    ranked = np.argsort(-score, kind="stable")
    turn = np.empty(len(ranked), np.int64)  # how many entries of its class come before an entry
    seen: Counter[int] = Counter()
    for at in ranked.tolist():
        turn[at] = seen[int(label[at])]
        seen[int(label[at])] += 1
    chosen = ranked[np.argsort(turn[ranked], kind="stable")][:SUSPECTS]
    order = chosen[np.argsort(-score[chosen], kind="stable")]
    return [
        Suspect(
            int(sample.index[rows[at]]),
            int(label[at]),
            float(score[at]),
            int(sample.truth[rows[at], label[at]]),
        )
        for at in order.tolist()
        if np.isfinite(score[at])
    ]


def recovery_curve(logits: Scores, sample: ImageSample, rows: NDArray[np.int64]) -> RecoveryCurve | None:
    """Precision and recall of unknown labels in the order of their logits; None if no label is missing."""
    unknown = (sample.observed[rows] == UNKNOWN) & (sample.truth[rows] != UNKNOWN)
    present = sample.truth[rows][unknown] == POSITIVE
    if not present.any():
        return None
    scores = logits[unknown]
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(present[order])
    called = np.arange(1, len(order) + 1)
    last = np.append(scores[order][1:] != scores[order][:-1], True)  # equal scores are called present together
    precision, recall = (right / called)[last], (right / right[-1])[last]
    kept = np.unique(np.searchsorted(recall, np.linspace(recall[0], 1, _CURVE_POINTS)))
    whole = float(average_precision(scores[:, None], present[:, None].astype(np.int8))[0])
    return RecoveryCurve(whole, recall[kept], precision[kept], int(right[-1]))


def _histograms(probability: Scores, sample: ImageSample, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    shares = {}
    for kind, mask in sample.entries_by_kind().items():
        counts = np.histogram(probability[mask[rows]], EDGES)[0]
        shares[kind] = counts / max(counts.sum(), 1)
    return shares
