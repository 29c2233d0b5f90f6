"""Batches for training and evaluation, from images or from a feature cache."""

from tagfill.data.extract import extract
from tagfill.data.feature_cache import FeatureCache, verify_cache
from tagfill.data.locations import Locations
from tagfill.data.sampler import Sampler
from tagfill.data.sources import FeatureSource, PixelSource, Source, SourceWithMarks

__all__ = [
    "FeatureCache",
    "FeatureSource",
    "Locations",
    "PixelSource",
    "Sampler",
    "Source",
    "SourceWithMarks",
    "extract",
    "verify_cache",
]
