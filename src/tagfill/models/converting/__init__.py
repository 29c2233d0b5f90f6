"""Published models of other projects as classifiers of this one, by explicit conversion only."""

from __future__ import annotations

from collections.abc import Callable

from tagfill.models.classifier import Classifier
from tagfill.models.converting import mlspl, q2l, tscam
from tagfill.models.converting.checkpoint import Checkpoint, read_checkpoint

SOURCES: dict[str, Callable[..., Classifier]] = {"mlspl": mlspl.convert, "q2l": q2l.convert, "tscam": tscam.convert}

__all__ = ["SOURCES", "Checkpoint", "read_checkpoint"]
