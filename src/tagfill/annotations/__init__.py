"""Annotations as rows, datasets, and labels in memory."""

from tagfill.annotations.dataset import Dataset
from tagfill.annotations.hierarchy import Hierarchy
from tagfill.annotations.labels import LabelMatrix
from tagfill.annotations.overlay import Overlay
from tagfill.annotations.problems import Problem
from tagfill.annotations.rows import IMAGES_SCHEMA, KINDS, SCHEMA, from_records, table
from tagfill.annotations.states import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.annotations.validation import validate

__all__ = [
    "IMAGES_SCHEMA",
    "KINDS",
    "NEGATIVE",
    "POSITIVE",
    "SCHEMA",
    "UNKNOWN",
    "Dataset",
    "Hierarchy",
    "LabelMatrix",
    "Overlay",
    "Problem",
    "from_records",
    "table",
    "validate",
]
