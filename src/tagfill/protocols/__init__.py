"""Simulate partly labeled data from fully labeled data, to measure methods against the truth.

A protocol is a function of a dataset, a seed and its options. Draws that follow published code do so number for number;
all others depend only on the names of images and classes, not on their order.
"""

from collections.abc import Callable

from tagfill.dataset import Dataset
from tagfill.protocols.budget import budget
from tagfill.protocols.dropped_positives import dropped_positives
from tagfill.protocols.hierarchy import hierarchy
from tagfill.protocols.positive_fraction import positive_fraction
from tagfill.protocols.random_labels import fixed_per_class, random_entries, random_per_image
from tagfill.protocols.simulate import describe, summary
from tagfill.protocols.single_positive import k_positives, single_positive

PROTOCOLS: dict[str, Callable[..., Dataset]] = {
    "single-positive": single_positive,
    "k-positives": k_positives,
    "budget": budget,
    "random-entries": random_entries,
    "random-per-image": random_per_image,
    "fixed-per-class": fixed_per_class,
    "dropped-positives": dropped_positives,
    "positive-fraction": positive_fraction,
    "hierarchy": hierarchy,
}

__all__ = [
    "PROTOCOLS",
    "budget",
    "describe",
    "dropped_positives",
    "fixed_per_class",
    "hierarchy",
    "k_positives",
    "positive_fraction",
    "random_entries",
    "random_per_image",
    "single_positive",
    "summary",
]
