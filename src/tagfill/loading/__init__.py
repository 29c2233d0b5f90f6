"""Batches for training and evaluation, from images or from a feature cache."""

from tagfill.loading.cache import FeatureCache
from tagfill.loading.extract import extract
from tagfill.loading.features import FeatureSource
from tagfill.loading.locations import Locations
from tagfill.loading.marked import MarkedSource
from tagfill.loading.pixels import PixelSource
from tagfill.loading.planned import parse_views
from tagfill.loading.sampler import Sampler
from tagfill.loading.source import Source, chunks
from tagfill.loading.verifying import verify

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
