"""Datasets: annotation rows, their tables, and how they become labels."""

from tagfill.dataset.dataset import Dataset
from tagfill.dataset.hierarchy import Hierarchy
from tagfill.dataset.notebook import ImageRecord
from tagfill.dataset.tables import IMAGES_SCHEMA, KINDS, SCHEMA, from_records, table
from tagfill.dataset.validation import Problem, validate
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, Overlay

__all__ = [
    "IMAGES_SCHEMA",
    "KINDS",
    "NEGATIVE",
    "POSITIVE",
    "SCHEMA",
    "UNKNOWN",
    "Dataset",
    "Hierarchy",
    "ImageRecord",
    "LabelMatrix",
    "Overlay",
    "Problem",
    "from_records",
    "table",
    "validate",
]
