"""Metrics of predictions: arrays in, numbers out; fractions in 0…1."""

from tagfill.metrics.accumulator import Gathered, Predictions
from tagfill.metrics.average_precision import average_precision, mean_average_precision
from tagfill.metrics.recovery import gap_closed

__all__ = ["Gathered", "Predictions", "average_precision", "gap_closed", "mean_average_precision"]
