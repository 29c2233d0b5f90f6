"""Tags that may be missing: the probable ones, and sums over all of them, in one pass over the scores."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from tagfill.curation.estimates import EstimateSummary, LabelEstimates
from tagfill.dataset import Dataset
from tagfill.probabilities import Calibration

LEAST_PROBABILITY = 0.05  # of candidates that are kept
CANDIDATES, DOUBTS, SCORED = "candidates.parquet", "doubts.parquet", "scored.json"  # files of a scoring
_BINS = 1000  # of the histogram that thresholds are chosen from


class Scored(BaseModel):
    """What scoring found out, beside the candidates.

    Attributes:
        expected: expected number of missing tags of each class.
        estimates: where the probabilities come from.
        calibration: of the trained model, for photos without tags.
        precision: expected share of right labels among those with at least a probability of 0, 1/1000, 2/1000, … in
            new photos.
        weights: of the model and of each piece of evidence; empty if there is none.
        val_mAP: on photos with complete labels, in percent.
        doubts: a sentence about annotations that may be wrong.
        doubted: number of these annotations.
    """

    expected: list[float]
    estimates: EstimateSummary
    calibration: Calibration
    precision: list[float] = []
    weights: dict[str, float] = {}
    val_mAP: float | None = None  # noqa: N815
    doubts: str = ""
    doubted: int = 0

    def threshold(self, precision: float) -> float:
        """The lowest probability from which labels of new photos have this expected precision; ½ if none has.

        >>> scored = Scored.model_construct(precision=[0.1, 0.6, 0.9, 0.95])
        >>> scored.threshold(0.9), scored.threshold(0.99)
        (0.5, 0.5)
        """
        enough = np.flatnonzero(np.asarray(self.precision) >= precision)
        return float(enough[0]) / len(self.precision) if len(enough) else 0.5


class Candidates:
    """Pairs that are probable enough to be of interest, and sums over all pairs.

    Memory grows with the number of tags that are expected to be missing, not with photos × classes.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset, self._labels = dataset, dataset.labels()
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []
        self.expected = np.zeros(len(dataset.classes))
        self._counts, self._sums = np.zeros(_BINS), np.zeros(_BINS)

    def add(
        self,
        rows: NDArray[np.int64],
        logits: NDArray[np.floating],
        estimates: LabelEstimates,
    ) -> None:
        """Take the scores of some photos.

        Args:
            rows: of the image table.
            logits: n×L.
            estimates: turn them into probabilities.
        """
        unknown = ~self._labels.is_annotated(rows)
        probability = np.where(unknown, estimates(logits, self._labels.rows(rows)), 0.0)
        self.expected += probability.sum(0)
        image, label = np.nonzero(probability >= LEAST_PROBABILITY)
        self._parts.append((rows[image], label, probability[image, label].astype(np.float32)))

    def sample(self, logits: NDArray[np.floating], estimates: LabelEstimates) -> None:
        """Take the scores of photos that are a sample of those that the model alone will see.

        Args:
            logits: n×L, of the model.
            estimates: turn them into probabilities.
        """
        p = estimates.for_new_images(logits).ravel()
        bins = np.minimum((p * _BINS).astype(np.int64), _BINS - 1)
        self._counts += np.bincount(bins, minlength=_BINS)
        self._sums += np.bincount(bins, p, _BINS)

    def table(self) -> pa.Table:
        """The candidates."""
        rows, labels, probability = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        return pa.table(
            {
                "image": self._dataset.images["image"].take(pa.array(rows)),
                "label": pa.array(self._dataset.classes, pa.string()).take(pa.array(labels)),
                "probability": pa.array(probability),
            }
        )

    def precision(self) -> NDArray[np.float64]:
        """Expected share of right labels in new photos from each probability on: the mean of all that are not lower.

        Higher probabilities without any label have the share of the highest one with some.
        """
        counts, sums = (np.cumsum(values[::-1])[::-1] for values in (self._counts, self._sums))
        last = max(int(np.flatnonzero(counts).max(initial=0)), 0)
        shares: NDArray[np.float64] = sums / np.maximum(counts, 1)
        shares[last + 1 :] = shares[last]
        return shares
