"""Metrics of predictions: arrays in, numbers out; fractions in 0…1."""

from tagfill.metrics.accumulator import Gathered, Predictions
from tagfill.metrics.average_precision import Definition, Empty, average_precision, mean_average_precision, where_ranked
from tagfill.metrics.bootstrap import Interval, bootstrap_interval
from tagfill.metrics.calibration import Reliability, expected_calibration_error, reliability
from tagfill.metrics.confusion import Confusion, confusions
from tagfill.metrics.correlation import rank_correlation
from tagfill.metrics.groups import group_means
from tagfill.metrics.localisation import Localisation, Localised, ioa
from tagfill.metrics.recovery import Recovered, gap_closed, recovered
from tagfill.metrics.thresholds import Counts, best_thresholds, count
from tagfill.metrics.top import AtK, at_k, by_label_count, mean_average_precision_by_label_count, top_1

__all__ = [
    "AtK",
    "Confusion",
    "Counts",
    "Definition",
    "Empty",
    "Gathered",
    "Interval",
    "Localisation",
    "Localised",
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
