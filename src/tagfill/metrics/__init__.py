"""Metrics of predictions: arrays in, numbers out; fractions in 0…1."""

from tagfill.deprecation import renamed
from tagfill.metrics.accumulator import GatheredPredictions, Predictions
from tagfill.metrics.average_precision import (
    RECALL_LEVELS,
    Definition,
    Empty,
    average_precision,
    counted_average_precision,
    group_means,
    mean_average_precision,
    nan_without_negatives,
    precision_at_recall,
)
from tagfill.metrics.bootstrap import Interval, bootstrap_interval
from tagfill.metrics.calibration import Reliability, expected_calibration_error, reliability
from tagfill.metrics.classification import (
    Confusion,
    Counts,
    PrecisionRecall,
    best_thresholds,
    by_label_count,
    confusions,
    count,
    mean_average_precision_by_label_count,
    precision_recall_at_k,
    roc_auc,
    top1_accuracy,
)
from tagfill.metrics.localization import (
    LocalizationMeter,
    LocalizationScores,
    intersection_over_prediction,
    rank_correlation,
)
from tagfill.metrics.recovery import Recovered, gap_closed, recovered

__all__ = [
    "RECALL_LEVELS",
    "Confusion",
    "Counts",
    "Definition",
    "Empty",
    "GatheredPredictions",
    "Interval",
    "LocalizationMeter",
    "LocalizationScores",
    "PrecisionRecall",
    "Predictions",
    "Recovered",
    "Reliability",
    "average_precision",
    "best_thresholds",
    "bootstrap_interval",
    "by_label_count",
    "confusions",
    "count",
    "counted_average_precision",
    "expected_calibration_error",
    "gap_closed",
    "group_means",
    "intersection_over_prediction",
    "mean_average_precision",
    "mean_average_precision_by_label_count",
    "nan_without_negatives",
    "precision_at_recall",
    "precision_recall_at_k",
    "rank_correlation",
    "recovered",
    "reliability",
    "roc_auc",
    "top1_accuracy",
]

__getattr__ = renamed(
    __name__,
    {
        "AtK": "PrecisionRecall",
        "Gathered": "GatheredPredictions",
        "Localisation": "LocalizationMeter",
        "Localised": "LocalizationScores",
        "at_k": "precision_recall_at_k",
        "ioa": "intersection_over_prediction",
        "top_1": "top1_accuracy",
        "where_ranked": "nan_without_negatives",
    },
)
