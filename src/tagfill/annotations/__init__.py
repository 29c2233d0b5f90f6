"""Annotations as rows, datasets, and labels in memory."""

from tagfill.annotations.dataset import Dataset
from tagfill.annotations.labels import LabelMatrix
from tagfill.annotations.rows import IMAGES_SCHEMA, SCHEMA, from_records, table
from tagfill.annotations.states import NEGATIVE, POSITIVE, UNKNOWN

__all__ = [
    "IMAGES_SCHEMA",
    "NEGATIVE",
    "POSITIVE",
    "SCHEMA",
    "UNKNOWN",
    "Dataset",
    "LabelMatrix",
    "from_records",
    "table",
]
