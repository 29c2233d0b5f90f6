"""A small dataset, tiny backbones, and helpers to read their feature caches."""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tagfill.data import FeatureCache
from tagfill.dataset import Dataset
from tagfill.images import Geometry
from tagfill.models import Backbone, create_backbone
from tagfill.progress import Bar
from tagfill.scenes import make

TRAIN, VAL, TEST = 12, 4, 4
VIEWS = "eval,flip,crops:2"
NAMES = ("eval", "flip", "crop0", "crop1")


@functools.cache
def scenes() -> Dataset:
    folder = tempfile.TemporaryDirectory(prefix="scenes-")
    dataset = make(Path(folder.name) / "scenes", train=TRAIN, val=VAL, test=TEST, size=64)
    _kept.append(folder)
    return dataset


_kept: list[tempfile.TemporaryDirectory[str]] = []  # until the process ends


def tiny(seed: int = 0, name: str = "test_resnet") -> Backbone:
    """A network of a few thousand weights on a 64 px input, unbounded; its grid is 2×2."""
    return create_backbone(name, image_size=64, seed=seed)


def bounded() -> Backbone:
    """A backbone whose features end in ReLU6."""
    return create_backbone("mobilenetv2_035", image_size=64)


def small_shards(monkeypatch: pytest.MonkeyPatch, rows: int = 5) -> None:
    """Shards of a few rows and batches of fewer, so that a small cache has several of each."""
    module = importlib.import_module("tagfill.data.extract")
    monkeypatch.setattr(module, "SHARD_ROWS", rows)
    monkeypatch.setattr(module, "BATCH", 3)


def read(cache: FeatureCache, wanted: Sequence[tuple[str, int]], *, maps: bool) -> tuple[torch.Tensor, Geometry]:
    """The features of (view, row) pairs."""
    names = list(dict.fromkeys(view for view, _ in wanted))
    drawn, rows = [names.index(view) for view, _ in wanted], [row for _, row in wanted]
    return cache.read(names, np.array(drawn), np.array(rows), maps=maps)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class InterruptionError(Exception):
    pass


class Stopping:
    """A progress that stops the work after a number of batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        return self  # type: ignore[return-value]

    def say(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def advance(self, steps: int = 1) -> None:
        self.left -= 1
        if self.left < 0:
            raise InterruptionError

    def __enter__(self) -> Stopping:
        return self

    def __exit__(self, *error: object) -> None: ...


def every_row(dataset: Dataset, view: str) -> np.ndarray:
    return np.arange(len(dataset)) if view == "eval" else dataset.split("train")
