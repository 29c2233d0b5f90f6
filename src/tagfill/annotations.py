"""Old name of `tagfill.dataset` and `tagfill.labels`, kept for one version."""

from __future__ import annotations

from tagfill.deprecation import renamed

_DATASET = ("IMAGES_SCHEMA", "KINDS", "SCHEMA", "Dataset", "Hierarchy", "Problem", "from_records", "table", "validate")
_LABELS = ("NEGATIVE", "POSITIVE", "UNKNOWN", "LabelMatrix", "Overlay")

__getattr__ = renamed(
    __name__,
    {name: f"tagfill.dataset.{name}" for name in _DATASET} | {name: f"tagfill.labels.{name}" for name in _LABELS},
)
