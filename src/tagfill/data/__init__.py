"""Batches for training and evaluation, from images or from a feature cache."""

from tagfill.data.extract import extract
from tagfill.data.feature_cache import FeatureCache, verify_cache
from tagfill.data.locations import Locations
from tagfill.data.manifest import parse_view_specs
from tagfill.data.sampler import Sampler
from tagfill.data.sources import FeatureSource, PixelSource, Source, SourceWithMarks, chunks

__all__ = [
    "FeatureCache",
    "FeatureSource",
    "Locations",
    "PixelSource",
    "Sampler",
    "Source",
    "SourceWithMarks",
    "chunks",
    "extract",
    "parse_view_specs",
    "verify_cache",
]
