"""Experiments: feature caches by name, and the demonstration."""

from tagfill.experiments.caching import features
from tagfill.experiments.demonstration import Row, demo

__all__ = ["Row", "demo", "features"]
