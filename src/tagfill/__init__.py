"""Tagfill trains multi-label image classifiers from partly labeled images, and fills in the missing labels.

    import tagfill

    data = tagfill.scenes.make()
    part = tagfill.protocols.single_positive(data, seed=1200)
    run = tagfill.train(part, method="en+scl", head="cam", epochs=10)
    print(tagfill.evaluate(run, part, split="test").mean)

Importing this package is fast: torch and other large libraries are imported when a name that needs them is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # true to type checkers; nothing is imported here, so that the command line starts at once

if TYPE_CHECKING:
    from typing import Any

    __version__: str

    from tagfill import evidence as evidence
    from tagfill import formats as formats
    from tagfill import losses as losses
    from tagfill import methods as methods
    from tagfill import metrics as metrics
    from tagfill import models as models
    from tagfill import protocols as protocols
    from tagfill import scenes as scenes
    from tagfill.curation.suggest import suggest as suggest
    from tagfill.data import FeatureCache as FeatureCache
    from tagfill.data.extract import features as features
    from tagfill.dataset import Dataset as Dataset
    from tagfill.errors import TagfillError as TagfillError
    from tagfill.experiments import budget as budget
    from tagfill.experiments import compare as compare
    from tagfill.filling import fill as fill
    from tagfill.inference import export as export
    from tagfill.inference import predict as predict
    from tagfill.inference import predict_to_file as predict_to_file
    from tagfill.labels import LabelMatrix as LabelMatrix
    from tagfill.training import Run as Run
    from tagfill.training import evaluate as evaluate
    from tagfill.training import resume as resume
    from tagfill.training import train as train

_MODULES = ("evidence", "formats", "losses", "methods", "metrics", "models", "protocols", "scenes")
_NAMES = {
    "Dataset": "dataset",
    "LabelMatrix": "labels",
    "TagfillError": "errors",
    "FeatureCache": "data",
    "budget": "experiments",
    "compare": "experiments",
    "features": "data.extract",
    "fill": "filling",
    "export": "inference",
    "predict": "inference",
    "predict_to_file": "inference",
    "Run": "training",
    "suggest": "curation.suggest",
    "evaluate": "training",
    "resume": "training",
    "train": "training",
}

__all__ = [*_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"tagfill.{name}")
    if name in _NAMES:
        return getattr(import_module(f"tagfill.{_NAMES[name]}"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("tagfill")
    raise AttributeError(f"module 'tagfill' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
