"""How good evidence is: compared with the labels that are known, or with the complete ones of a simulated dataset."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.evidence.debias import debias
from tagfill.evidence.scores import Evidence, open_evidence
from tagfill.io import nan_to_none
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.metrics import counted_average_precision, expected_calibration_error


@dataclass(frozen=True)
class EvidenceQuality:
    """Evidence compared with labels.

    Attributes:
        name: of the evidence.
        labels: what it was compared with: `known` labels; `known, unknown taken as absent`, where no class has both
            known tags and known absent labels; or `complete`, those that the dataset was simulated from.
        pairs: scored pairs that it was compared on.
        coverage: share of the pairs of the split that have a score.
        average_precision: L fractions; NaN for a class that cannot be judged.
        calibration_error: of the debiased probabilities of pairs that were unknown or are known, see `evaluate`; NaN
            if the labels do not tell.
        raw_calibration_error: of the scores themselves, if they are probabilities; else NaN.
        expected_labels: labels per image according to the debiased probabilities.
        trust: L, how well it ranks known tags of each class, see `class_trust`.
        classes: their names.
    """

    name: str
    labels: str
    pairs: int
    coverage: float
    average_precision: NDArray[np.float64]
    calibration_error: float
    raw_calibration_error: float
    expected_labels: float
    trust: NDArray[np.float64]
    classes: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Mean average precision; NaN if no class can be judged."""
        known = self.average_precision[~np.isnan(self.average_precision)]
        return float(known.mean()) if len(known) else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "labels": self.labels,
            "pairs": self.pairs,
            "coverage": self.coverage,
            "mAP": nan_to_none(self.mean),
            "calibration_error": nan_to_none(self.calibration_error),
            "raw_calibration_error": nan_to_none(self.raw_calibration_error),
            "expected_labels": self.expected_labels,
            "classes": {
                name: {"average_precision": nan_to_none(float(precision)), "trust": float(trust)}
                for name, precision, trust in zip(self.classes, self.average_precision, self.trust, strict=True)
            },
        }


def evaluate_evidence(
    dataset: Dataset | str | os.PathLike[str],
    name: str,
    *,
    split: str | None = None,
    expected: float | None = None,
) -> EvidenceQuality:
    """Compare evidence with labels.

    Ranking is judged on raw scores, class by class. Calibration is judged on debiased probabilities, which see the
    known labels only; a dataset that was simulated from a complete one is judged on the labels that were hidden.

    Args:
        dataset: the dataset or its folder.
        name: of the evidence.
        split: of the images; by default all.
        expected: stated labels per image, for debiasing.

    Example:
        >>> from tagfill.evidence import evaluate_evidence
        >>> evaluate_evidence("photos", "clip").mean  # doctest: +SKIP
        0.87
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    evidence = open_evidence(data, name)
    rows = np.arange(len(data)) if split is None else data.split(split)
    known = data.labels().rows(rows)
    scores = evidence.scores.rows(rows).astype(np.float64)
    scored = ~np.isnan(scores)
    truth, source = _labels_to_judge_by(data, rows, known)
    judged = np.where(scored, truth, UNKNOWN).astype(np.int8)
    precision = counted_average_precision(np.nan_to_num(scores), judged)
    debiased = debias(evidence, data.labels(), expected=expected)
    probability = debiased.probabilities(rows, known)
    hidden = np.where(scored & (known == UNKNOWN), truth, UNKNOWN) if source == "complete" else judged
    error = raw = float("nan")
    if (hidden != UNKNOWN).any() and source == "complete":
        error = expected_calibration_error(np.nan_to_num(probability), hidden)
    elif source == "known" and (hidden != UNKNOWN).any():
        blind = debiased.estimates.for_new_images(np.nan_to_num(debiased.scores.rows(rows).astype(np.float64)))
        error = expected_calibration_error(blind, hidden)
    if evidence.scale in ("probabilities", "softmax") and source != _ASSUMED and (hidden != UNKNOWN).any():
        raw = expected_calibration_error(np.clip(np.nan_to_num(scores), 0, 1), hidden)
    with_scores = scored.any(1)
    expected_labels = float(np.nansum(probability[with_scores]) / max(int(with_scores.sum()), 1))
    return EvidenceQuality(
        name, source, int((judged != UNKNOWN).sum()), float(scored.mean()) if scored.size else 0.0, precision, error,
        raw, expected_labels, debiased.trust, data.classes,
    )  # fmt: skip


_ASSUMED = "known, unknown taken as absent"


def _labels_to_judge_by(
    data: Dataset, rows: NDArray[np.int64], known: NDArray[np.int8]
) -> tuple[NDArray[np.int8], str]:
    """Labels of these images and what they are."""
    if data.truth is not None:
        truth = Dataset.open(data.truth)
        if truth.names() == data.names() and truth.classes == data.classes:
            return truth.labels().rows(rows), "complete"
    if ((known == POSITIVE).any(0) & (known == NEGATIVE).any(0)).any():
        return known, "known"
    return np.where(known == UNKNOWN, NEGATIVE, known).astype(np.int8), _ASSUMED


def describe(evidence: Evidence) -> dict[str, Any]:
    """Evidence in a few numbers, for lists."""
    per_image = np.diff(evidence.scores.starts)
    return {
        "name": evidence.name,
        "scale": evidence.scale,
        "source": evidence.source,
        "time": evidence.time.isoformat(),
        "scores": len(evidence),
        "images": int((per_image > 0).sum()),
        "classes": len(np.unique(evidence.scores.classes)),
    }
