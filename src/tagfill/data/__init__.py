"""Batches for training and evaluation, from images or from a feature cache."""

from tagfill.data.extract import extract
from tagfill.data.feature_cache import FeatureCache, verify
from tagfill.data.locations import Locations
from tagfill.data.manifest import parse_views
from tagfill.data.sampler import Sampler
from tagfill.data.sources import FeatureSource, MarkedSource, PixelSource, Source, chunks

__all__ = [
    "FeatureCache",
    "FeatureSource",
    "Locations",
    "MarkedSource",
    "PixelSource",
    "Sampler",
    "Source",
    "chunks",
    "extract",
    "parse_views",
    "verify",
]
