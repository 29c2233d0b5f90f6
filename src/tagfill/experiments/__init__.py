"""Experiments: feature caches by name, and the demonstration."""

from tagfill.experiments.caching import features
from tagfill.experiments.demonstration import REPORT, Row, demo

__all__ = ["REPORT", "Row", "demo", "features"]
