"""Simulating partly labelled data from fully labelled data, to measure methods against the truth.

A protocol is a function of a dataset, a seed and its options. Draws that follow published code do so number for number;
all others depend on the names of images and classes alone, never on their order.
"""

from collections.abc import Callable

from tagfill.annotations import Dataset
from tagfill.protocols.budget import budget
from tagfill.protocols.dropped_positives import dropped_positives
from tagfill.protocols.fixed_per_class import fixed_per_class
from tagfill.protocols.hierarchy import hierarchy
from tagfill.protocols.k_positives import k_positives
from tagfill.protocols.positive_fraction import positive_fraction
from tagfill.protocols.random_entries import random_entries
from tagfill.protocols.random_per_image import random_per_image
from tagfill.protocols.single_positive import single_positive
from tagfill.protocols.summary import describe, summary

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
