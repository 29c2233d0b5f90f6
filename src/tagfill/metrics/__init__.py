"""Metrics of predictions: arrays in, numbers out; fractions in 0…1."""

from tagfill.metrics.accumulator import Gathered, Predictions
from tagfill.metrics.average_precision import (
    Definition,
    Empty,
    average_precision,
    group_means,
    mean_average_precision,
    where_ranked,
)
from tagfill.metrics.bootstrap import Interval, bootstrap_interval
from tagfill.metrics.calibration import Reliability, expected_calibration_error, reliability
from tagfill.metrics.classification import (
    AtK,
    Confusion,
    Counts,
    at_k,
    best_thresholds,
    by_label_count,
    confusions,
    count,
    mean_average_precision_by_label_count,
    top_1,
)
from tagfill.metrics.localization import LocalizationMeter, LocalizationScores, ioa, rank_correlation
from tagfill.metrics.recovery import Recovered, gap_closed, recovered

__all__ = [
    "AtK",
    "Confusion",
    "Counts",
    "Definition",
    "Empty",
    "Gathered",
    "Interval",
    "LocalizationMeter",
    "LocalizationScores",
    "Predictions",
    "Recovered",
    "Reliability",
    "at_k",
    "average_precision",
    "best_thresholds",
    "bootstrap_interval",
    "by_label_count",
    "confusions",
    "count",
    "expected_calibration_error",
    "gap_closed",
    "group_means",
    "ioa",
    "mean_average_precision",
    "mean_average_precision_by_label_count",
    "rank_correlation",
    "recovered",
    "reliability",
    "top_1",
    "where_ranked",
]
