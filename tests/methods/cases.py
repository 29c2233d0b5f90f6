"""Three classes, six images with one positive each, and a task around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tagfill.contract import Batch, Marks, Method, Prediction, Ranks, Task
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory

DENSE = np.full((6, 3), -1, dtype=np.int8)
DENSE[[0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2]] = 1
DENSE[0, 2] = 0
LABELS = LabelMatrix.from_dense(DENSE)
GRID = (2, 2)


def task_of(labels: LabelMatrix = LABELS, **changes: Any) -> Task:
    all_images = np.arange(len(labels))
    settings: dict[str, Any] = {
        "classes": tuple("abcdefgh"[: labels.width]),
        "labels": labels,
        "size": len(labels),
        "epochs": 3,
        "seed": 0,
        "grid": GRID,
        "expected_positives": 1.5,
        "lr": 1e-2,
        "memory": Memory(labels, all_images, seed=0),
        "ranks": Ranks(),
        "predict": lambda split: iter(()),
        "shard": all_images,
        "frozen_features": lambda: np.eye(len(labels), 4, dtype=np.float32),
        "truth": lambda: labels,
    }
    return Task(**{**settings, **changes})


def batch_of(index: list[int], labels: LabelMatrix = LABELS, *, exact: bool = True) -> Batch:
    geometry = Geometry.whole(len(index))
    geometry.exact[:] = exact
    rows = torch.from_numpy(labels.rows(np.array(index)))
    nowhere = Marks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 4)), ())
    return Batch(torch.tensor(index), rows, torch.zeros(len(index), 1), geometry, marks=nowhere)


def paired(index: list[int], labels: LabelMatrix = LABELS) -> Batch:
    """A weak and a strong view of each image; the strong one is distorted."""
    single = batch_of(index, labels)
    geometry = Geometry.join([single.geometry, single.geometry])
    geometry.exact[len(index) :] = False
    inputs = torch.arange(2 * len(index)).view(-1, 1)
    return Batch(single.index, single.labels, inputs, geometry, ("weak", "strong"), single.marks)


def maps_of(index: list[int], classes: int = 3, seed: int = 0) -> Prediction:
    """Random class maps with the logits that belong to them."""
    draws = torch.Generator().manual_seed(seed)
    maps = torch.randn(len(index), classes, *GRID, generator=draws)
    return Prediction(maps.mean((2, 3)), maps)


def visit(method: Method, task: Task, index: list[int], prediction: Prediction) -> dict[str, torch.Tensor]:
    """One step of training without the optimizer; a method of two views needs a prediction of both."""
    task.memory.begin_step()
    batch = (paired if "weak+strong" in method.needs else batch_of)(index, task.labels)
    terms = method.loss(batch, prediction)
    method.observe(batch, prediction)
    return terms
