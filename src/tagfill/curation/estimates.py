"""How many labels are missing, for suggestions, plans and `fill`; see `tagfill.inference.estimates`."""

from __future__ import annotations

from tagfill.inference.estimates import (
    ESTIMATED,
    MEASURED,
    NOT_CALIBRATED,
    Additions,
    EstimateSummary,
    LabelEstimates,
    choose_additions,
    estimate_labels,
    learn_weights,
    least_tags,
    measure_labels,
    probability_beside_drawn,
    probability_of_unknown,
    summarize,
    uncorrected,
)

__all__ = [
    "ESTIMATED",
    "MEASURED",
    "NOT_CALIBRATED",
    "Additions",
    "EstimateSummary",
    "LabelEstimates",
    "choose_additions",
    "estimate_labels",
    "learn_weights",
    "least_tags",
    "measure_labels",
    "probability_beside_drawn",
    "probability_of_unknown",
    "summarize",
    "uncorrected",
]
